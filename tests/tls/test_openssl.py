"""The openssl command as the other end: another program's idea of TLS, in both roles."""
import ssl

import pytest
from support.loops import without_debug
from support.openssl import Server, needs_openssl, s_client
from support.protocols import Echo
from support.tls import TLSServer, client_context, server_context
from support.waiting import quiet

pytestmark = [needs_openssl, without_debug("a process for each test")]
versions = pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])


async def finish(transport, protocol):
    transport.close()
    await protocol.until_lost()


@versions
async def test_client_talks_to_our_server(loop, version):
    async with TLSServer(loop, Echo) as server:
        with s_client(loop, server.port, version, "-quiet") as client:
            await client.echo(b"hello\n")
        await quiet()


async def test_key_updates(loop):
    """K asks the other end for a new key as well, k does not."""
    async with TLSServer(loop, Echo) as server:
        with s_client(loop, server.port, "-tls1_3") as client:
            for word in (b"before", b"K", b"between", b"k", b"after"):
                # One at a time: it looks for a command where a read begins.
                await client.say(word + b"\n")
                await client.hear_until(word if len(word) > 1 else b"KEYUPDATE")
        await quiet()


@versions
async def test_client_certificate(loop, version):
    context = server_context(client_certificates=True)
    async with TLSServer(loop, Echo, context) as server:
        with s_client(loop, server.port, version, "-quiet", "-cert", "client.pem", "-key",
                      "client.key") as client:
            await client.echo(b"hello\n")
            cert = server.protocols[0].transport.get_extra_info("peercert")
            assert ("commonName", "eploop test client") in [entry[0] for entry in cert["subject"]]
        await quiet()


async def test_application_protocol_and_server_name(loop):
    context = server_context()
    context.set_alpn_protocols(["h2"])
    names = []
    context.sni_callback = lambda tls, name, initial: names.append(name)
    async with TLSServer(loop, Echo, context) as server:
        with s_client(loop, server.port, "-alpn", "h2,http/1.1") as client:
            assert b"ALPN protocol: h2" in await client.hear_until(b"ALPN")
            assert names == ["localhost"]
        await quiet()


@versions
async def test_sessions(loop, version, tmp_path):
    file = tmp_path / "session"
    async with TLSServer(loop, Echo) as server:
        with s_client(loop, server.port, version, "-sess_out", file) as client:
            await client.say(b"one\n")
            await client.hear_until(b"one")
            await client.say(b"Q\n")
            await client.finish()
        with s_client(loop, server.port, version, "-sess_in", file) as client:
            assert b"Reused, " in await client.hear_until(b"Reused, ")
        await quiet()


@versions
async def test_megabytes_from_a_client_and_back(loop, version):
    data = (bytes(range(32, 127)) + b"\n") * 30_000 + b"the end\n"
    async with TLSServer(loop, Echo) as server:
        with s_client(loop, server.port, version, "-quiet") as client:
            await client.echo(data)
        await quiet()


@versions
async def test_we_talk_to_its_server(loop, version):
    async with Server(loop, version, "-rev") as server:
        transport, protocol = await server.connect(loop)
        transport.write(b"olleh\n")
        assert await protocol.until_received(6) == b"hello\n"
        assert transport.get_extra_info("ssl_object").version() == {
            "-tls1_2": "TLSv1.2", "-tls1_3": "TLSv1.3"}[version]
        await finish(transport, protocol)


@versions
async def test_its_server_wants_our_certificate(loop, version):
    async with Server(loop, version, "-rev", "-Verify", "1", "-CAfile", "ca.pem",
                      "-verify_return_error") as server:
        transport, protocol = await server.connect(loop, client_context(certificate="client"))
        transport.write(b"ab\n")
        assert await protocol.until_received(3) == b"ba\n"
        await finish(transport, protocol)
        try:
            transport, protocol = await server.connect(loop)
        except (ssl.SSLError, ConnectionError):
            return
        assert isinstance(await protocol.until_lost(), (ssl.SSLError, ConnectionError))


async def test_its_server_asks_for_key_updates(loop):
    async with Server(loop, "-tls1_3") as server:
        transport, protocol = await server.connect(loop)
        for word in (b"before", b"K", b"between", b"k", b"after"):
            await server.command.say(word + b"\n")
            if len(word) == 1:
                await server.command.hear_until(b"SSL_do_handshake -> 1")
            else:
                await protocol.until(lambda p, word=word: word in p.received)
                transport.write(b"answer to " + word + b"\n")
                await server.command.hear_until(b"answer to " + word)
        await finish(transport, protocol)


async def test_its_server_renegotiates(loop):
    """TLS 1.2's own way to new keys: what is written meanwhile comes after it."""
    async with Server(loop, "-tls1_2") as server:
        transport, protocol = await server.connect(loop)
        for i in range(3):
            await server.command.say(b"r\n")
            await server.command.hear_until(b"SSL_do_handshake -> 1")
            transport.write(b"line %d\n" % i)
            await server.command.hear_until(b"line %d" % i)
            await server.command.say(b"answer %d\n" % i)
            await protocol.until(lambda p, i=i: b"answer %d\n" % i in p.received)
        await finish(transport, protocol)


async def test_its_server_says_goodbye(loop):
    async with Server(loop) as server:
        transport, protocol = await server.connect(loop)
        transport.write(b"hello\n")
        await server.command.hear_until(b"hello")
        await server.command.say(b"Q\n")
        assert await protocol.until_lost() is None
        assert protocol.names[-2:] == ["eof_received", "connection_lost"]
        assert transport.is_closing()
