"""Each thing that a context can ask for, in both roles, with stock asyncio or openssl opposite."""
import asyncio
import contextlib
import ssl
import threading

import pytest
from support.loops import without_debug
from support.net import LOOPBACK
from support.openssl import Server, needs_openssl, s_client
from support.protocols import Recorder
from support.tls import TLSServer, client_context, server_context
from support.waiting import quiet, soon, until

pytestmark = without_debug("the layers below are the same")
KEY = b"\x2a" * 16


class Backwards(Recorder):
    """Sends each line back, reversed."""

    def data_received(self, data):
        super().data_received(data)
        for line in data.splitlines():
            self.transport.write(line[::-1] + b"\n")


class Feature:
    """Contexts for both ends, what openssl needs to say the same, and what must come of it."""

    client_flags = server_flags = ()

    def __init__(self, tmp_path):
        self.tmp_path = tmp_path

    def client(self):
        return client_context()

    def server(self):
        return server_context()

    def check(self, transport, ours):
        """`ours` is "client" or "server"."""


class ServerName(Feature):
    """The callback of a server hears the name; a client without it would have failed."""

    names = ()

    def server(self):
        context = server_context()
        self.names = []
        context.sni_callback = lambda tls, name, initial: self.names.append(name)
        return context

    def check(self, transport, ours):
        if ours == "server":
            assert self.names == ["localhost"]


class KeyLog(Feature):
    def _logging(self, context):
        context.keylog_filename = self.tmp_path / "keys"
        return context

    def client(self):
        return self._logging(client_context())

    def server(self):
        return self._logging(server_context())

    def check(self, transport, ours):
        assert "_TRAFFIC_SECRET_0" in (self.tmp_path / "keys").read_text()


class Messages(Feature):
    def __init__(self, tmp_path):
        super().__init__(tmp_path)
        self.seen = {"client": [], "server": []}

    def _watched(self, context, side):
        context._msg_callback = lambda *message: self.seen[side].append(message)
        return context

    def client(self):
        return self._watched(client_context(), "client")

    def server(self):
        return self._watched(server_context(), "server")

    def check(self, transport, ours):
        assert len(self.seen[ours]) > 5
        assert all(isinstance(message[0], ssl.SSLObject) for message in self.seen[ours])


class ClientCertificate(Feature):
    client_flags = ("-cert", "client.pem", "-key", "client.key")
    server_flags = ("-Verify", "1", "-verify_return_error", "-CAfile", "ca.pem")

    def client(self):
        return client_context(certificate="client")

    def server(self):
        return server_context(client_certificates=True)

    def check(self, transport, ours):
        names = dict(entry[0] for entry in transport.get_extra_info("peercert")["subject"])
        assert names["commonName"] == {
            "server": "eploop test client", "client": "localhost"}[ours]


class ApplicationProtocol(Feature):
    client_flags = server_flags = ("-alpn", "eploop")

    def _speaking(self, context):
        context.set_alpn_protocols(["eploop"])
        return context

    def client(self):
        return self._speaking(client_context())

    def server(self):
        return self._speaking(server_context())

    def check(self, transport, ours):
        assert transport.get_extra_info("ssl_object").selected_alpn_protocol() == "eploop"


class SharedKey(Feature):
    client_flags = ("-psk", KEY.hex(), "-psk_identity", "me", "-tls1_2", "-cipher", "PSK")
    server_flags = (*client_flags, "-nocert")

    def __init__(self, tmp_path):
        super().__init__(tmp_path)
        if not getattr(ssl, "HAS_PSK", False):
            pytest.skip("this Python's ssl has no PSK")

    def _keyed(self, context):
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers("PSK")
        return context

    def client(self):
        context = self._keyed(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_psk_client_callback(lambda hint: ("me", KEY))
        return context

    def server(self):
        context = self._keyed(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        context.set_psk_server_callback(lambda identity: KEY if identity == "me" else b"")
        return context

    def check(self, transport, ours):
        assert "PSK" in transport.get_extra_info("cipher")[0]
        assert not transport.get_extra_info("peercert")


@pytest.fixture(params=Feature.__subclasses__(), ids=lambda cls: cls.__name__)
def feature(request, tmp_path):
    return request.param(tmp_path)


@contextlib.asynccontextmanager
async def stock_loop():
    """Stock asyncio in a thread; gives a function that awaits a coroutine there."""
    other = asyncio.SelectorEventLoop()
    thread = threading.Thread(target=other.run_forever)
    thread.start()

    async def there(coroutine):
        return await soon(asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, other)))

    try:
        yield there, other
    finally:
        await there(asyncio.sleep(0.02))
        other.call_soon_threadsafe(other.stop)
        thread.join()
        other.close()


async def talk(transport, protocol):
    transport.write(b"olleh\n")
    assert await protocol.until_received(6) == b"hello\n"


async def finish(transport, protocol):
    transport.close()
    await protocol.until_lost()


async def test_our_server_and_a_client_of_asyncio(loop, feature):
    async def visit(port):
        reader, writer = await asyncio.open_connection(
            LOOPBACK, port, ssl=feature.client(), server_hostname="localhost")
        writer.write(b"olleh\n")
        line = await reader.readline()
        writer.close()
        await writer.wait_closed()
        return line

    async with TLSServer(loop, Backwards, feature.server()) as server, stock_loop() as (there, _):
        assert await there(visit(server.port)) == b"hello\n"
        feature.check(server.protocols[0].transport, "server")
        await server.protocols[0].until_lost()


async def test_our_client_and_a_server_of_asyncio(loop, feature):
    async with stock_loop() as (there, other):
        server = await there(other.create_server(Backwards, LOOPBACK, 0, ssl=feature.server()))
        port = server.sockets[0].getsockname()[1]
        transport, protocol = await loop.create_connection(
            Recorder, LOOPBACK, port, ssl=feature.client(), server_hostname="localhost")
        await talk(transport, protocol)
        feature.check(transport, "client")
        await finish(transport, protocol)
        other.call_soon_threadsafe(server.close)


@needs_openssl
async def test_our_server_and_openssl(loop, feature):
    async with TLSServer(loop, Backwards, feature.server()) as server:
        flags = feature.client_flags
        with s_client(loop, server.port, "-quiet", *flags) as client:
            await client.say(b"olleh\n")
            await client.hear_until(b"hello")
            await until(lambda: server.protocols)
            feature.check(server.protocols[0].transport, "server")
        await quiet()


@needs_openssl
async def test_our_client_and_openssl(loop, feature):
    async with Server(loop, "-rev", *feature.server_flags) as server:
        transport, protocol = await server.connect(loop, feature.client())
        await talk(transport, protocol)
        feature.check(transport, "client")
        await finish(transport, protocol)
