"""TLS by create_connection, create_server and start_tls."""
import asyncio
import contextlib
import socket
import ssl

from support.net import LOOPBACK, Peer, tcp_pair
from support.protocols import Recorder
from support.tls import TLSPeer, client_context, server_context
from support.waiting import quiet, soon, turns

from surface.checks import equal, kind_of, raises, refused
from surface.ends import dial, farewell_to_silence, gone, port_of, serving
from surface.rows import subject

row = subject("TLS")


@contextlib.asynccontextmanager
async def talking(loop, context=None, server=None, factory=Recorder, **options):
    """A TLS client and its server's end, which have exchanged a byte: two protocols."""
    options.setdefault("server_hostname", "localhost")
    async with serving(loop, factory, ssl=server or server_context()) as (listening, clients):
        transport, protocol = await soon(loop.create_connection(
            factory, LOOPBACK, port_of(listening), ssl=context or client_context(), **options))
        transport.write(b"x")
        far = await clients.accepted()
        await far.until_received(1)
        yield protocol, far
        await gone(transport, protocol)


async def fails(loop, *kinds, context=None, **options):
    """Connecting must raise one of these exceptions, which is returned."""
    loop.set_exception_handler(lambda loop, context: None)
    async with serving(loop, ssl=server_context()) as (listening, _):
        exc = await refused(soon(loop.create_connection(
            Recorder, "localhost", port_of(listening), ssl=context or client_context(),
            **options)), *kinds)
        await quiet()
    return exc


@row("create_connection(ssl=), create_server(ssl=): 1 MB both ways")
async def both_ways(loop):
    async with talking(loop) as (near, far):
        data = bytes(range(250)) * 4000
        near.transport.write(data)
        far.transport.write(data)
        received, echoed = await asyncio.gather(
            far.until_received(len(data) + 1), near.until_received(len(data)))
        assert (received, echoed) == (b"x" + data, data), "other bytes"


@row("create_connection(ssl=True) uses the default context")
async def default_context(loop):
    await fails(loop, ssl.SSLCertVerificationError, context=True)


@row("create_server(ssl=True) is a TypeError")
async def boolean(loop):
    with raises(TypeError):
        await loop.create_server(Recorder, LOOPBACK, 0, ssl=True)


@row("create_connection(server_hostname=)")
async def server_hostname(loop):
    exc = await fails(loop, ssl.SSLCertVerificationError, server_hostname="other.test")
    assert "other.test" in str(exc), exc
    with raises(ValueError):
        await loop.create_connection(Recorder, LOOPBACK, 80, server_hostname="localhost")


@row("an unknown authority is an SSLCertVerificationError")
async def unknown_authority(loop):
    await fails(loop, ssl.SSLCertVerificationError, context=ssl.create_default_context())


@row("a private authority can be trusted")
async def private_authority(loop):
    async with talking(loop) as (near, _):
        names = near.transport.get_extra_info("peercert")["subjectAltName"]
        assert ("DNS", "localhost") in names, names


@row("create_connection(ssl_handshake_timeout=)")
async def client_handshake_timeout(loop):
    near, far = tcp_pair()
    await refused(loop.create_connection(
        Recorder, sock=near, ssl=client_context(), server_hostname="localhost",
        ssl_handshake_timeout=0.05), ConnectionAbortedError)
    await turns(4)
    far.close()


@row("create_server(ssl_handshake_timeout=)")
async def server_handshake_timeout(loop):
    loop.set_exception_handler(lambda loop, context: None)
    async with serving(loop, ssl=server_context(), ssl_handshake_timeout=0.05) as (server, _):
        with dial(server) as sock:
            equal(await Peer(sock).recv_all(), b"")


async def silent_peer(loop, connect, **options):
    """A transport made by `connect(sock, …)`, a client or a server, of a peer without manners."""
    near, far = tcp_pair()
    if options.pop("server_side", False):
        peer = TLSPeer(far, client_context(), server_hostname="localhost")
        options["ssl"] = server_context()
    else:
        peer = TLSPeer(far, server_context(), server_side=True)
        options |= {"ssl": client_context(), "server_hostname": "localhost"}
    made, _ = await soon(asyncio.gather(connect(Recorder, sock=near, **options),
                                        peer.handshake()))
    return *made, peer


@row("create_connection(ssl_shutdown_timeout=)")
async def client_shutdown_timeout(loop):
    transport, protocol, peer = await silent_peer(
        loop, loop.create_connection, ssl_shutdown_timeout=0.05)
    await farewell_to_silence(transport, protocol)
    peer.close()


@row("create_server(ssl_shutdown_timeout=)")
async def server_shutdown_timeout(loop):
    async with serving(loop, ssl=server_context(), ssl_shutdown_timeout=0.05) as (
            server, clients):
        with dial(server) as sock:
            await TLSPeer(sock, client_context(), server_hostname="localhost").handshake()
            client = await clients.accepted()
            await farewell_to_silence(client.transport, client)


@row("connect_accepted_socket(ssl=, ssl_shutdown_timeout=)")
async def accepted_shutdown_timeout(loop):
    transport, protocol, peer = await silent_peer(
        loop, loop.connect_accepted_socket, ssl_shutdown_timeout=0.05, server_side=True)
    kind_of(protocol, Recorder)
    await peer.send(b"x")
    equal(await protocol.until_received(1), b"x")
    await farewell_to_silence(transport, protocol)
    peer.close()


@row("connect_accepted_socket(ssl_handshake_timeout=)")
async def accepted_handshake_timeout(loop):
    near, far = tcp_pair()
    await refused(loop.connect_accepted_socket(
        Recorder, near, ssl=server_context(), ssl_handshake_timeout=0.05),
        ConnectionAbortedError)
    await turns(4)
    far.close()


@row("timeouts without ssl, or not above 0, are a ValueError")
async def wrong_timeouts(loop):
    for option in ("ssl_handshake_timeout", "ssl_shutdown_timeout"):
        with raises(ValueError):
            await loop.create_connection(Recorder, LOOPBACK, 80, **{option: 1})
        with raises(ValueError):
            await loop.create_server(Recorder, LOOPBACK, 0, **{option: 1})
        near, far = tcp_pair()
        with raises(ValueError):
            await loop.create_connection(
                Recorder, sock=near, ssl=client_context(), server_hostname="localhost",
                **{option: 0})
        near.close()
        far.close()


@row("the peer closes in the handshake: ConnectionResetError")
async def closed_in_handshake(loop):
    near, far = tcp_pair()
    far.close()
    await refused(loop.create_connection(
        Recorder, sock=near, ssl=client_context(), server_hostname="localhost"),
        ConnectionError)
    await turns(4)


@row("close() says goodbye: close_notify")
async def close_notify(loop):
    transport, protocol, peer = await silent_peer(loop, loop.create_connection)
    transport.write(b"last")
    transport.close()
    equal(await peer.recv_exactly(4), b"last")
    equal(await peer.recv(), b"")       # without the goodbye it would be an SSLEOFError
    peer.close()
    await protocol.until_lost()
    await turns(4)


@row("close() while the peer keeps sending ends soon")
async def close_under_fire(loop):
    async with talking(loop) as (near, far):
        ended = loop.create_task(near.until_lost())
        near.transport.close()
        while not ended.done() and not far.transport.is_closing():
            far.transport.write(b"x" * 65536)
            await asyncio.sleep(0.001)
        await soon(ended)


@row("a cancelled handshake leaves nothing behind")
async def cancelled(loop):
    near, far = tcp_pair()
    task = loop.create_task(loop.create_connection(
        Recorder, sock=near, ssl=client_context(), server_hostname="localhost"))
    await quiet()
    task.cancel()
    await refused(task, asyncio.CancelledError)
    await quiet()
    equal(near.fileno(), -1)
    far.close()


@row("start_tls(transport=, protocol=, sslcontext=, server_side=)")
async def start_tls(loop):
    near, far = tcp_pair()
    ends = await asyncio.gather(
        loop.create_connection(Recorder, sock=near),
        loop.connect_accepted_socket(Recorder, far))
    (client, ours), (server, theirs) = ends
    client, server = await soon(asyncio.gather(
        loop.start_tls(client, ours, client_context(), server_hostname="localhost"),
        loop.start_tls(server, theirs, server_context(), server_side=True)))
    client.write(b"secret")
    equal(await theirs.until_received(6), b"secret")
    kind_of(server.get_extra_info("ssl_object"), ssl.SSLObject)
    await gone(client, ours)
    await gone(server, theirs)


@row("start_tls(server_hostname=)")
async def start_tls_hostname(loop):
    near, far = tcp_pair()
    peer = TLSPeer(far, server_context(), server_side=True)
    transport, protocol = await loop.create_connection(Recorder, sock=near)
    handshake = loop.create_task(peer.handshake())
    await refused(soon(loop.start_tls(
        transport, protocol, client_context(), server_hostname="other.test")),
        ssl.SSLCertVerificationError)
    await refused(soon(handshake), ssl.SSLError, ConnectionError)
    await turns(4)
    peer.close()


@row("start_tls(ssl_handshake_timeout=)")
async def start_tls_timeout(loop):
    near, far = tcp_pair()
    transport, protocol = await loop.create_connection(Recorder, sock=near)
    await refused(loop.start_tls(
        transport, protocol, client_context(), server_hostname="localhost",
        ssl_handshake_timeout=0.05), ConnectionAbortedError)
    await turns(4)
    far.close()


@row("start_tls(ssl_shutdown_timeout=)")
async def start_tls_shutdown(loop):
    near, far = tcp_pair()
    peer = TLSPeer(far, server_context(), server_side=True)
    transport, protocol = await loop.create_connection(Recorder, sock=near)
    transport, _ = await soon(asyncio.gather(
        loop.start_tls(transport, protocol, client_context(), server_hostname="localhost",
                       ssl_shutdown_timeout=0.05),
        peer.handshake()))
    await farewell_to_silence(transport, protocol)
    peer.close()


@row("start_tls() with bytes that a StreamReader has read ahead")
async def read_ahead(loop):
    near, far = socket.socketpair()
    peer = TLSPeer(far, client_context(), server_hostname="localhost")
    reader, writer = await asyncio.open_unix_connection(sock=near)
    handshake = loop.create_task(peer.handshake())
    await quiet()       # the reader has the peer's first message now
    transport = await soon(loop.start_tls(
        writer.transport, writer.transport.get_protocol(), server_context(), server_side=True))
    await soon(handshake)
    await peer.send(b"line\n")
    equal(await soon(reader.readline()), b"line\n")
    transport.abort()
    await turns(4)
    peer.close()


@row("start_tls() of what is no context is a TypeError")
async def no_context(loop):
    near, far = tcp_pair()
    transport, protocol = await loop.create_connection(Recorder, sock=near)
    with raises(TypeError):
        await loop.start_tls(transport, protocol, None)
    await gone(transport, protocol)
    far.close()
