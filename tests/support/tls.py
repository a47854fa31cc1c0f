"""Contexts for the TLS tests, a server, and a far end that speaks TLS without any loop."""
import asyncio
import socket
import ssl
from pathlib import Path

from support.net import LOOPBACK, Peer
from support.protocols import Recorder
from support.waiting import POLL_S, quiet

CERTS = Path(__file__).parent.parent / "certs"


def server_context(name="server", *, client_certificates=False):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTS / f"{name}.pem", CERTS / f"{name}.key")
    if client_certificates:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(CERTS / "ca.pem")
    return context


def client_context(*, certificate=None):
    context = ssl.create_default_context(cafile=CERTS / "ca.pem")
    if certificate is not None:
        context.load_cert_chain(CERTS / f"{certificate}.pem", CERTS / f"{certificate}.key")
    return context


class TLSPeer(Peer):
    """A far end that does its part of TLS over a non-blocking socket."""

    def __init__(self, sock, context, *, server_side=False, server_hostname=None):
        super().__init__(sock)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(
            self.incoming, self.outgoing, server_side=server_side, server_hostname=server_hostname
        )
        self.eof = False

    async def handshake(self):
        await self._do(self.tls.do_handshake)

    async def handshake_and_send(self, data):
        """A handshake, with `data` in the same segment as its last message."""
        while True:
            try:
                self.tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                await self._flush()
                self.incoming.write(await super().recv())
        self.tls.write(data)
        await self._flush()

    async def unwrap(self):
        await self._do(self.tls.unwrap)

    async def send(self, data):
        view = memoryview(data)
        while view:
            view = view[await self._do(self.tls.write, view[:65536]):]

    async def recv(self, size=65536):
        try:
            return await self._do(self.tls.read, size)
        except ssl.SSLZeroReturnError:
            return b""

    async def recv_all_raw(self):
        """Ciphertext until the end of the stream."""
        data = bytearray()
        while some := await super().recv():
            data += some
        return bytes(data)

    async def _do(self, function, *args):
        while True:
            try:
                result = function(*args)
            except ssl.SSLWantReadError:
                await self._flush()
                data = await super().recv()
                self.incoming.write(data) if data else self.incoming.write_eof()
            except BaseException:
                await self._flush()     # the alert
                raise
            else:
                await self._flush()
                return result

    async def _flush(self):
        while self.outgoing.pending:
            await super().send(self.outgoing.read())
            await asyncio.sleep(POLL_S)


class TLSServer:
    """A TLS server with its protocols."""

    def __init__(self, loop, factory=Recorder, context=None, **options):
        self.loop, self.factory, self.protocols = loop, factory, []
        self.options = {"ssl": context or server_context(), **options}

    def _make(self):
        protocol = self.factory()
        self.protocols.append(protocol)
        return protocol

    async def __aenter__(self):
        self.server = await self.loop.create_server(self._make, LOOPBACK, 0, **self.options)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc_info):
        self.server.close()
        for protocol in self.protocols:
            transport = getattr(protocol, "transport", None)
            if transport is not None:
                transport.abort()
        await quiet()

    async def connect(self, factory=Recorder, context=None, **options):
        return await self.loop.create_connection(
            factory, "localhost", self.port, family=socket.AF_INET,
            ssl=context or client_context(), **options
        )
