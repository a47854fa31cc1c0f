"""TLS connections and servers."""
import asyncio
import os
import socket
import ssl

import pytest
from support.loops import differs_from_asyncio, without_debug
from support.net import BIG, LOOPBACK, Peer, attach, tcp_pair, unix_pair
from support.protocols import BufferedRecorder, Echo, Recorder, ViewRecorder
from support.tls import TLSPeer, client_context, server_context
from support.tls import TLSServer as Server
from support.waiting import quiet, soon, turns, until

pytestmark = pytest.mark.needs("tls")


@pytest.fixture(params=[Recorder, ViewRecorder], ids=["protocol", "buffered"])
def recorder(request):
    return request.param


async def finish(transport, protocol):
    transport.close()
    await protocol.until_lost()
    await turns()


async def test_both_ends(loop, recorder):
    async with Server(loop, recorder) as server:
        transport, protocol = await server.connect(recorder)
        transport.write(b"hello")
        await until(lambda: server.protocols and server.protocols[0].received == b"hello")
        server.protocols[0].transport.write(b"there")
        assert await protocol.until_received(5) == b"there"
        await finish(transport, protocol)
        assert await server.protocols[0].until_lost() is None


async def test_connection_made_comes_after_the_handshake(loop):
    class Asks(Recorder):
        def connection_made(self, transport):
            self.version = transport.get_extra_info("ssl_object").version()
            super().connection_made(transport)

    async with Server(loop, Asks) as server:
        transport, protocol = await server.connect(Asks)
        assert protocol.version.startswith("TLS")
        await until(lambda: server.protocols and server.protocols[0].names)
        assert server.protocols[0].version == protocol.version
        await finish(transport, protocol)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_versions(loop, version):
    context = client_context()
    context.minimum_version = context.maximum_version = version
    async with Server(loop, Echo) as server:
        transport, protocol = await server.connect(context=context)
        transport.write(b"x")
        await protocol.until_received(1)
        assert transport.get_extra_info("ssl_object").version() == version.name.replace("_", ".")
        await finish(transport, protocol)


@without_debug("moves megabytes")
async def test_megabytes_both_ways(loop, recorder):
    async with Server(loop, Echo) as server:
        transport, protocol = await server.connect(recorder)
        data = os.urandom(3 * BIG)
        transport.write(data)
        assert await protocol.until_received(len(data)) == data
        await finish(transport, protocol)


@differs_from_asyncio("it fills a copy of the bytearray, and the protocol sees zeros")
async def test_buffer_may_be_a_bytearray(loop):
    async with Server(loop, Echo) as server:
        transport, protocol = await server.connect(BufferedRecorder)
        data = os.urandom(100_000)
        transport.write(data)
        assert await protocol.until_received(len(data)) == data
        await finish(transport, protocol)


async def test_pieces_of_many_sizes(loop):
    async with Server(loop, Echo) as server:
        transport, protocol = await server.connect()
        expected = b""
        for size in (0, 1, 100, 16383, 16384, 16385, 65536, 100_000):
            piece = os.urandom(size)
            expected += piece
            transport.write(piece)
            await turns(1)
        transport.writelines([b"a", b"", bytearray(b"b"), memoryview(b"c")])
        assert await protocol.until_received(len(expected) + 3) == expected + b"abc"
        await finish(transport, protocol)


async def test_many_small_records_in_one_segment(loop, recorder):
    near, far = tcp_pair()
    peer = TLSPeer(far, server_context(), server_side=True)
    shaking = loop.create_task(peer.handshake())
    transport, protocol = await loop.create_connection(
        recorder, sock=near, ssl=client_context(), server_hostname="localhost"
    )
    await shaking
    for i in range(200):
        peer.tls.write(b"%03d" % i)
    await peer._flush()
    assert await protocol.until_received(600) == b"".join(b"%03d" % i for i in range(200))
    transport.abort()
    await protocol.until_lost()
    peer.close()


async def test_record_split_at_every_byte(loop, recorder):
    near, far = tcp_pair()
    peer = TLSPeer(far, server_context(), server_side=True)
    shaking = loop.create_task(peer.handshake())
    transport, protocol = await loop.create_connection(
        recorder, sock=near, ssl=client_context(), server_hostname="localhost"
    )
    await shaking
    peer.tls.write(b"one byte at a time")
    data = peer.outgoing.read()
    for i in range(len(data)):
        assert protocol.received == b""
        far.send(data[i:i + 1])
        await turns(2)
    assert await protocol.until_received(18) == b"one byte at a time"
    transport.abort()
    await protocol.until_lost()
    peer.close()


@without_debug("moves megabytes")
async def test_close_sends_everything_and_says_goodbye(loop):
    near, far = tcp_pair()
    peer = TLSPeer(far, server_context(), server_side=True)
    shaking = loop.create_task(peer.handshake())
    transport, protocol = await loop.create_connection(
        Recorder, sock=near, ssl=client_context(), server_hostname="localhost"
    )
    await shaking
    data = os.urandom(BIG)
    transport.write(data)
    transport.close()
    assert transport.is_closing()
    assert await peer.recv_exactly(BIG) == data
    # A read that ends without an error: close_notify came, not just the end of the stream.
    assert await peer.recv() == b""
    await peer.unwrap()
    peer.close()
    assert await protocol.until_lost() is None


async def test_close_of_the_peer_is_the_end(loop, recorder):
    near, far = tcp_pair()
    peer = TLSPeer(far, server_context(), server_side=True)
    shaking = loop.create_task(peer.handshake())
    _, protocol = await loop.create_connection(
        recorder, sock=near, ssl=client_context(), server_hostname="localhost"
    )
    await shaking
    await peer.send(b"last words")
    await peer.unwrap()
    peer.close()
    assert await protocol.until_lost() is None
    assert protocol.received == b"last words"
    assert protocol.count("eof_received") == 1


async def test_end_without_goodbye(loop):
    near, far = tcp_pair()
    peer = TLSPeer(far, server_context(), server_side=True)
    shaking = loop.create_task(peer.handshake())
    _, protocol = await loop.create_connection(
        Recorder, sock=near, ssl=client_context(), server_hostname="localhost"
    )
    await shaking
    await peer.send(b"cut")
    await protocol.until_received(3)
    peer.close()
    exc = await protocol.until_lost()
    assert exc is None or isinstance(exc, (ssl.SSLError, ConnectionError))


async def test_abort_drops_what_is_queued(loop):
    async with Server(loop) as server:
        transport, protocol = await server.connect()
        transport.write(b"x" * (8 * BIG))
        transport.abort()
        await protocol.until_lost()
        transport.write(b"silent")
        await turns()


async def test_pausing(loop, recorder):
    async with Server(loop) as server:
        transport, protocol = await server.connect(recorder)
        await until(lambda: server.protocols and server.protocols[0].transport)
        assert transport.is_reading()
        transport.pause_reading()
        assert not transport.is_reading()
        await turns()
        server.protocols[0].transport.write(b"held back")
        await quiet()
        assert protocol.received == b""
        transport.resume_reading()
        assert await protocol.until_received(9) == b"held back"
        await finish(transport, protocol)


async def test_pausing_in_data_received(loop):
    """The rest may sit inside the TLS engine, where no event tells of it."""
    class Pauses(Recorder):
        def data_received(self, data):
            super().data_received(data)
            self.transport.pause_reading()

    async with Server(loop) as server:
        transport, protocol = await server.connect(Pauses)
        await until(lambda: server.protocols and server.protocols[0].transport)
        data = os.urandom(300_000)
        server.protocols[0].transport.write(data)
        while len(protocol.received) < len(data):
            count = protocol.count("data_received")
            transport.resume_reading()
            await protocol.until(lambda p, n=count: p.count("data_received") > n)
        assert protocol.received == data
        await finish(transport, protocol)


async def test_flow_control(loop):
    async with Server(loop) as server:
        transport, protocol = await server.connect()
        await until(lambda: server.protocols and server.protocols[0].transport)
        accepted = server.protocols[0]
        accepted.transport.pause_reading()
        transport.set_write_buffer_limits(high=100_000)
        assert transport.get_write_buffer_limits() == (25_000, 100_000)
        written = 0
        while not protocol.count("pause_writing"):
            transport.write(b"x" * 50_000)
            written += 50_000
            assert written < 64 << 20
            await turns(2)
        assert transport.get_write_buffer_size() > 100_000
        accepted.transport.resume_reading()
        await protocol.until_called("resume_writing")
        await accepted.until_received(written)
        await finish(transport, protocol)


async def test_bytearray_may_be_changed_after_the_write(loop):
    async with Server(loop) as server:
        transport, protocol = await server.connect()
        await until(lambda: server.protocols and server.protocols[0].transport)
        server.protocols[0].transport.pause_reading()
        data = bytearray(b"a" * (8 * BIG))
        transport.write(data)
        data[:] = b"b" * len(data)
        data.clear()
        server.protocols[0].transport.resume_reading()
        received = await server.protocols[0].until_received(8 * BIG)
        assert received.count(b"a") == 8 * BIG
        await finish(transport, protocol)


async def test_write_type_errors(loop):
    async with Server(loop) as server:
        transport, protocol = await server.connect()
        for bad in ("text", None, 1):
            with pytest.raises(TypeError):
                transport.write(bad)
        await finish(transport, protocol)


async def test_extra_info(loop):
    async with Server(loop) as server:
        context = client_context()
        transport, protocol = await server.connect(context=context)
        info = transport.get_extra_info
        assert info("sslcontext") is context
        assert isinstance(info("ssl_object"), ssl.SSLObject)
        assert dict(entry[0] for entry in info("peercert")["subject"])["commonName"] == "localhost"
        assert info("cipher") == info("ssl_object").cipher()
        assert info("compression") is None
        assert info("peername")[1] == server.port
        assert info("sockname")[0] == LOOPBACK
        assert info("socket").fileno() > 0
        assert info("nonsense", 3) == 3
        await until(lambda: server.protocols and server.protocols[0].transport)
        accepted = server.protocols[0].transport
        assert accepted.get_extra_info("peername") == info("sockname")
        assert not accepted.get_extra_info("peercert")
        await finish(transport, protocol)


@differs_from_asyncio("it forgets everything with the end of the connection")
async def test_extra_info_after_the_end(loop):
    async with Server(loop) as server:
        transport, protocol = await server.connect()
        await finish(transport, protocol)
        assert transport.get_extra_info("peername")[1] == server.port
        assert transport.get_extra_info("sockname")[0] == LOOPBACK


async def test_transport_kind(loop):
    async with Server(loop) as server:
        transport, protocol = await server.connect()
        assert isinstance(transport, asyncio.Transport)
        assert transport.get_protocol() is protocol
        other = Recorder()
        other.transport = transport
        transport.set_protocol(other)
        assert transport.get_protocol() is other
        await until(lambda: server.protocols and server.protocols[0].transport)
        server.protocols[0].transport.write(b"x")
        await other.until_received(1)
        await finish(transport, other)


async def test_half_close_is_not_supported(loop):
    async with Server(loop) as server:
        transport, protocol = await server.connect()
        assert transport.can_write_eof() is False
        with pytest.raises(NotImplementedError):
            transport.write_eof()
        await finish(transport, protocol)


async def test_certificate_of_somebody_else(loop, unhandled):
    async with Server(loop, context=server_context("other")) as server:
        with pytest.raises(ssl.SSLCertVerificationError) as caught:
            await server.connect()
        assert caught.value.verify_code != 0
        await quiet()
    unhandled.take()        # the server's view of it, in debug mode


async def test_unknown_authority(loop, unhandled):
    async with Server(loop) as server:
        with pytest.raises(ssl.SSLCertVerificationError) as caught:
            await server.connect(context=ssl.create_default_context())
        assert caught.value.reason == "CERTIFICATE_VERIFY_FAILED"
        await quiet()
    unhandled.take()        # the server's view of it, in debug mode


async def test_server_hostname_can_be_given(loop):
    async with Server(loop, Echo, context=server_context("other")) as server:
        transport, protocol = await server.connect(server_hostname="other.test")
        transport.write(b"x")
        await protocol.until_received(1)
        await finish(transport, protocol)


async def test_server_name_callback(loop):
    asked = []
    context = server_context()
    other = server_context("other")

    def choose(tls, name, initial):
        asked.append(name)
        tls.context = other

    context.sni_callback = choose
    async with Server(loop, Echo, context) as server:
        transport, protocol = await server.connect(server_hostname="other.test")
        transport.write(b"x")
        await protocol.until_received(1)
        assert asked == ["other.test"]
        await finish(transport, protocol)


async def test_application_protocol(loop):
    ours, theirs = client_context(), server_context()
    ours.set_alpn_protocols(["h2", "http/1.1"])
    theirs.set_alpn_protocols(["http/1.1"])
    async with Server(loop, context=theirs) as server:
        transport, protocol = await server.connect(context=ours)
        tls = transport.get_extra_info("ssl_object")
        assert tls.selected_alpn_protocol() == "http/1.1"
        await finish(transport, protocol)


async def test_client_certificate(loop):
    async with Server(loop, Echo, server_context(client_certificates=True)) as server:
        transport, protocol = await server.connect(context=client_context(certificate="client"))
        transport.write(b"x")
        await protocol.until_received(1)
        cert = server.protocols[0].transport.get_extra_info("peercert")
        names = dict(entry[0] for entry in cert["subject"])
        assert names["commonName"] == "eploop test client"
        await finish(transport, protocol)


async def test_missing_client_certificate(loop, unhandled):
    async with Server(loop, context=server_context(client_certificates=True)) as server:
        try:
            _, protocol = await server.connect()
        except (ssl.SSLError, ConnectionError):
            pass
        else:       # TLS 1.3: the client learns of it after its handshake
            await protocol.until_lost()
        assert all(not protocol.received for protocol in server.protocols)
        await quiet()
    unhandled.take()        # the server's view of it, in debug mode


async def test_key_log(loop, tmp_path):
    context = client_context()
    context.keylog_filename = tmp_path / "keys"
    async with Server(loop, Echo) as server:
        transport, protocol = await server.connect(context=context)
        transport.write(b"x")
        await protocol.until_received(1)
        await finish(transport, protocol)
    assert "CLIENT" in (tmp_path / "keys").read_text()


async def test_handshake_timeout_of_a_client(loop):
    near, far = tcp_pair()
    with pytest.raises(ConnectionAbortedError, match="handshake"):
        await loop.create_connection(
            Recorder, sock=near, ssl=client_context(), server_hostname="localhost",
            ssl_handshake_timeout=0.05,
        )
    await turns()
    assert near.fileno() == -1
    far.close()


async def test_handshake_timeout_of_a_server(loop, unhandled):
    async with Server(loop, ssl_handshake_timeout=0.05) as server:
        with socket.create_connection((LOOPBACK, server.port)) as sock:
            assert await Peer(sock).recv() == b""
        assert [p.names for p in server.protocols] in ([], [[]])
    unhandled.take()        # debug mode of some versions logs it through here


async def test_peer_that_closes_in_the_handshake(loop):
    near, far = tcp_pair()
    task = loop.create_task(loop.create_connection(
        Recorder, sock=near, ssl=client_context(), server_hostname="localhost"
    ))
    assert await Peer(far).recv()
    far.close()
    with pytest.raises((ConnectionError, ssl.SSLError)):
        await soon(task)
    await turns()
    assert near.fileno() == -1


async def test_peer_that_does_not_speak_tls(loop):
    near, far = tcp_pair()
    task = loop.create_task(loop.create_connection(
        Recorder, sock=near, ssl=client_context(), server_hostname="localhost"
    ))
    far.send(b"220 ready when you are\r\n" * 10)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await soon(task)
    far.close()
    await turns()
    assert near.fileno() == -1


async def test_server_survives_clients_that_do_not_speak_tls(loop, unhandled):
    async with Server(loop, Echo) as server:
        for nonsense in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01"):
            with socket.create_connection((LOOPBACK, server.port)) as sock:
                sock.send(nonsense)
        transport, protocol = await server.connect()
        transport.write(b"x")
        await protocol.until_received(1)
        await finish(transport, protocol)
    unhandled.take()


async def test_cancelled_in_the_handshake(loop):
    near, far = tcp_pair()
    task = loop.create_task(loop.create_connection(
        Recorder, sock=near, ssl=client_context(), server_hostname="localhost"
    ))
    assert await Peer(far).recv()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    far.close()
    await until(lambda: near.fileno() == -1)


async def test_shutdown_timeout(loop):
    """A peer that never answers the goodbye does not keep the connection for ever."""
    near, far = tcp_pair()
    peer = TLSPeer(far, server_context(), server_side=True)
    shaking = loop.create_task(peer.handshake())
    transport, protocol = await loop.create_connection(
        Recorder, sock=near, ssl=client_context(), server_hostname="localhost",
        ssl_shutdown_timeout=0.05,
    )
    await shaking
    transport.close()
    await protocol.until_lost()
    peer.close()


@pytest.mark.parametrize("name", ["ssl_handshake_timeout", "ssl_shutdown_timeout"])
async def test_timeouts_must_be_positive(loop, name):
    near, far = tcp_pair()
    with pytest.raises(ValueError, match="should be a positive number"):
        await loop.create_connection(
            Recorder, sock=near, ssl=client_context(), server_hostname="localhost", **{name: 0}
        )
    near.close()
    far.close()


async def test_default_context(loop, unhandled):
    """ssl=True means a context that trusts the authorities of the system only."""
    async with Server(loop) as server:
        with pytest.raises(ssl.SSLCertVerificationError):
            await loop.create_connection(
                Recorder, "localhost", server.port, family=socket.AF_INET, ssl=True
            )
        await quiet()
    unhandled.take()        # the server's view of it, in debug mode


async def test_unix_socket(loop, tmp_path):
    near, far = unix_pair()
    peer = TLSPeer(far, server_context(), server_side=True)
    shaking = loop.create_task(peer.handshake())
    transport, protocol = await loop.create_unix_connection(
        Recorder, sock=near, ssl=client_context(), server_hostname="localhost"
    )
    await shaking
    transport.write(b"hello")
    assert await peer.recv_exactly(5) == b"hello"
    await peer.send(b"there")
    assert await protocol.until_received(5) == b"there"
    transport.abort()
    await protocol.until_lost()
    peer.close()


async def test_exception_in_data_received_ends_the_connection(loop, unhandled):
    class Fails(Recorder):
        def data_received(self, data):
            raise ZeroDivisionError

    async with Server(loop) as server:
        _, protocol = await server.connect(Fails)
        await until(lambda: server.protocols and server.protocols[0].transport)
        server.protocols[0].transport.write(b"x")
        assert isinstance(await protocol.until_lost(), ZeroDivisionError)
        assert isinstance(unhandled.take_one()["exception"], ZeroDivisionError)


async def upgrade_both(loop, first, second, *, after=b""):
    """start_tls on both ends of a connection of the loop."""
    near, far = tcp_pair()
    ours, client = await attach(loop, near, first)
    theirs, server = await attach(loop, far, second)
    ours, theirs = await asyncio.gather(
        loop.start_tls(ours, client, client_context(), server_hostname="localhost"),
        loop.start_tls(theirs, server, server_context(), server_side=True),
    )
    client.transport, server.transport = ours, theirs
    return ours, client, theirs, server


async def test_start_tls(loop, recorder):
    ours, client, theirs, server = await upgrade_both(loop, recorder, recorder)
    assert client.count("connection_made") == 1     # not told again
    ours.write(b"hello")
    assert await server.until_received(5) == b"hello"
    theirs.write(b"there")
    assert await client.until_received(5) == b"there"
    assert isinstance(ours.get_extra_info("ssl_object"), ssl.SSLObject)
    ours.close()
    assert await client.until_lost() is None
    assert await server.until_lost() is None


async def test_start_tls_in_mid_stream(loop):
    """Plain text first; the upgrade begins when the peer agrees."""
    near, far = tcp_pair()
    peer = Peer(far)
    transport, protocol = await attach(loop, near, Recorder)
    transport.write(b"STARTTLS\n")
    assert await peer.recv_exactly(9) == b"STARTTLS\n"
    await peer.send(b"OK\n")
    assert await protocol.until_received(3) == b"OK\n"
    peer = TLSPeer(far, server_context(), server_side=True)
    shaking = loop.create_task(peer.handshake())
    tls = await loop.start_tls(transport, protocol, client_context(), server_hostname="localhost")
    await shaking
    tls.write(b"secret")
    assert await peer.recv_exactly(6) == b"secret"
    await peer.send(b"answer")
    assert await protocol.until_received(9) == b"OK\nanswer"
    tls.abort()
    await protocol.until_lost()
    peer.close()


async def test_start_tls_while_reading_is_paused(loop):
    near, far = tcp_pair()
    peer = TLSPeer(far, client_context(), server_hostname="localhost")
    transport, protocol = await attach(loop, near, Recorder)
    transport.pause_reading()
    shaking = loop.create_task(peer.handshake())
    await quiet()           # the first record of the peer waits in the socket
    tls = await loop.start_tls(transport, protocol, server_context(), server_side=True)
    await shaking
    await peer.send(b"hello")
    assert await protocol.until_received(5) == b"hello"
    tls.abort()
    await protocol.until_lost()
    peer.close()


@differs_from_asyncio("what was read ahead is lost to the handshake")
async def test_start_tls_after_the_first_record_was_read(loop):
    """The peer's first record follows its plain text at once, and one read takes both."""
    near, far = tcp_pair()
    peer = TLSPeer(far, client_context(), server_hostname="localhost")
    reader, writers = asyncio.StreamReader(), []
    await attach(loop, near, lambda: asyncio.StreamReaderProtocol(
        reader, lambda _, writer: writers.append(writer)))
    writer, = writers
    with pytest.raises(ssl.SSLWantReadError):
        peer.tls.do_handshake()
    far.send(b"STARTTLS\n" + peer.outgoing.read())
    assert await soon(reader.readline()) == b"STARTTLS\n"
    shaking = loop.create_task(peer.handshake())
    await soon(writer.start_tls(server_context()))
    await soon(shaking)
    await peer.send(b"hello\n")
    assert await soon(reader.readline()) == b"hello\n"
    writer.transport.abort()
    await turns()
    peer.close()


@pytest.mark.parametrize("bad", [None, True, "context"])
async def test_start_tls_wants_a_context(loop, bad):
    near, far = tcp_pair()
    transport, protocol = await attach(loop, near, Recorder)
    with pytest.raises(TypeError, match="SSLContext"):
        await loop.start_tls(transport, protocol, bad, server_hostname="localhost")
    await finish(transport, protocol)
    far.close()


async def test_start_tls_of_something_else_is_refused(loop):
    with pytest.raises(TypeError, match="not supported by start_tls"):
        await loop.start_tls(object(), Recorder(), client_context())


async def test_streams_over_tls(loop):
    async def serve(reader, writer):
        while line := await reader.readline():
            writer.write(line.upper())
            await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(serve, LOOPBACK, 0, ssl=server_context())
    port = server.sockets[0].getsockname()[1]

    async def ask(i):
        reader, writer = await asyncio.open_connection(
            "localhost", port, family=socket.AF_INET, ssl=client_context()
        )
        for _ in range(5):
            writer.write(b"client %d\n" % i)
            assert await reader.readline() == b"CLIENT %d\n" % i
        writer.close()
        await writer.wait_closed()

    async with server:
        await soon(asyncio.gather(*(ask(i) for i in range(10))))
        await quiet()


@differs_from_asyncio("the protocol answers over the old transport, which breaks the connection")
async def test_data_that_come_with_the_handshake_wait_for_start_tls(loop):
    class Echoes(Recorder):
        """Answers over what it believes to be its transport."""

        def data_received(self, data):
            super().data_received(data)
            self.transport.write(data)

    near, far = tcp_pair()
    plain, protocol = await attach(loop, near, Echoes)
    peer = TLSPeer(far, client_context(), server_hostname="localhost")
    upgrade = loop.start_tls(plain, protocol, server_context(), server_side=True)
    waiter = upgrade.send(None)     # by hand: the first turn after the handshake is the one

    def upgraded(_):
        with pytest.raises(StopIteration) as result:
            upgrade.send(None)
        protocol.transport = result.value.value

    waiter.add_done_callback(upgraded)
    await peer.handshake_and_send(b"hello")
    assert await peer.recv() == b"hello"
    protocol.transport.abort()
    peer.close()
    await protocol.until_lost()
    await quiet()


@differs_from_asyncio("it takes the late data for an error")
@pytest.mark.parametrize("paused", [False, True])
async def test_data_that_the_peer_sends_before_it_hears_of_the_end(loop, paused):
    near, far = tcp_pair()
    peer = TLSPeer(far, server_context(), server_side=True)
    handshake = loop.create_task(peer.handshake())
    transport, protocol = await loop.create_connection(
        Recorder, sock=near, ssl=client_context(), server_hostname="localhost")
    await handshake
    if paused:
        transport.pause_reading()
        await peer.send(b"early")
        await turns()
    transport.close()
    await peer.send(b"late")
    await peer.unwrap()
    assert await protocol.until_lost() is None
    assert protocol.received == b""
    peer.close()
    await quiet()


@differs_from_asyncio("what was received before is delivered after close()")
async def test_nothing_is_delivered_after_close(loop, recorder):
    near, far = tcp_pair()
    peer = TLSPeer(far, server_context(), server_side=True)
    handshake = loop.create_task(peer.handshake())
    transport, protocol = await loop.create_connection(
        recorder, sock=near, ssl=client_context(), server_hostname="localhost")
    await handshake
    transport.pause_reading()
    await peer.send(b"x")
    await quiet()
    transport.resume_reading()
    transport.close()
    await peer.unwrap()
    assert await protocol.until_lost() is None
    assert protocol.received == b""
    peer.close()
    await quiet()
