"""create_connection over TCP."""
import asyncio
import errno
import socket

import pytest
from support.loops import differs_from_asyncio
from support.net import LOOPBACK, Peer, attach, has_ipv6, socket_pair, tcp_pair, unused_port
from support.protocols import Echo, Recorder
from support.waiting import quiet, soon, turns, until

needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback")


@pytest.fixture
def listener():
    with socket.create_server((LOOPBACK, 0)) as sock:
        yield sock


def accept(listener):
    return Peer(listener.accept()[0])


async def finish(transport, protocol, peer=None):
    transport.close()
    await protocol.until_lost()
    await turns()
    if peer is not None:
        peer.close()


async def test_connect(loop, listener):
    transport, protocol = await loop.create_connection(Recorder, *listener.getsockname())
    peer = accept(listener)
    assert protocol.transport is transport
    transport.write(b"hello")
    assert await peer.recv_exactly(5) == b"hello"
    await peer.send(b"there")
    assert await protocol.until_received(5) == b"there"
    assert transport.get_extra_info("peername") == listener.getsockname()
    assert transport.get_extra_info("sockname") == peer.sock.getpeername()
    await finish(transport, protocol, peer)


async def test_connect_by_name(loop):
    server = await loop.create_server(Echo, "localhost", 0, family=socket.AF_INET)
    port = server.sockets[0].getsockname()[1]
    transport, protocol = await loop.create_connection(Recorder, "localhost", port)
    transport.write(b"x")
    await protocol.until_received(1)
    await finish(transport, protocol)
    server.close()
    await quiet()


async def test_port_may_be_text(loop, listener):
    host, port = listener.getsockname()
    transport, protocol = await loop.create_connection(Recorder, host, str(port))
    await finish(transport, protocol)


@needs_ipv6
async def test_ipv6(loop):
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as listener:
        transport, protocol = await loop.create_connection(Recorder, *listener.getsockname()[:2])
        assert transport.get_extra_info("peername") == listener.getsockname()
        await finish(transport, protocol)


async def test_refused(loop):
    with pytest.raises(ConnectionRefusedError) as caught:
        await loop.create_connection(Recorder, LOOPBACK, unused_port())
    assert caught.value.errno == errno.ECONNREFUSED
    assert LOOPBACK in str(caught.value)


async def test_factory_is_not_called_when_refused(loop):
    made = []
    with pytest.raises(ConnectionRefusedError):
        await loop.create_connection(lambda: made.append(1), LOOPBACK, unused_port())
    assert made == []


@differs_from_asyncio("it does not have that yet", below=(3, 12))
async def test_all_errors(loop):
    with pytest.raises(ExceptionGroup) as caught:
        await loop.create_connection(Recorder, LOOPBACK, unused_port(), all_errors=True)
    assert all(isinstance(exc, ConnectionRefusedError) for exc in caught.value.exceptions)


async def test_unknown_host(loop):
    async def getaddrinfo(*args, **kwargs):
        raise socket.gaierror(socket.EAI_NONAME, "no such name")

    loop.getaddrinfo = getaddrinfo
    with pytest.raises(socket.gaierror):
        await loop.create_connection(Recorder, "nowhere.invalid", 80)


async def resolve_to(loop, *addresses):
    """Have every name resolve to these addresses, in this order."""
    async def getaddrinfo(host, port, **kwargs):
        if host not in ("name.test", None):
            return await type(loop).getaddrinfo(loop, host, port, **kwargs)
        return [
            (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", address)
            for address in addresses
        ]

    loop.getaddrinfo = getaddrinfo


async def test_second_address_is_tried(loop, listener):
    await resolve_to(loop, (LOOPBACK, unused_port()), listener.getsockname())
    transport, protocol = await loop.create_connection(Recorder, "name.test", 80)
    assert transport.get_extra_info("peername") == listener.getsockname()
    await finish(transport, protocol)


async def test_several_refusals_make_one_error(loop):
    await resolve_to(loop, (LOOPBACK, unused_port()), ("127.0.0.2", unused_port()))
    with pytest.raises(OSError, match=r"127\.0\.0\.2"):
        await loop.create_connection(Recorder, "name.test", 80)


@pytest.mark.parametrize("options", [
    {"happy_eyeballs_delay": 0.01}, {"happy_eyeballs_delay": 0.25}, {"interleave": 1},
])
async def test_happy_eyeballs(loop, listener, options):
    await resolve_to(loop, (LOOPBACK, unused_port()), listener.getsockname())
    transport, protocol = await soon(
        loop.create_connection(Recorder, "name.test", 80, **options)
    )
    assert transport.get_extra_info("peername") == listener.getsockname()
    await finish(transport, protocol)


async def test_happy_eyeballs_does_not_wait_for_a_dead_address(loop, listener):
    """A listener whose queue is full answers nothing at all."""
    with socket.socket() as full:
        full.bind((LOOPBACK, 0))
        full.listen(0)
        fillers = []
        for _ in range(4):
            sock = socket.socket()
            sock.setblocking(False)
            sock.connect_ex(full.getsockname())
            fillers.append(sock)
        await resolve_to(loop, full.getsockname(), listener.getsockname())
        started = loop.time()
        transport, protocol = await loop.create_connection(
            Recorder, "name.test", 80, happy_eyeballs_delay=0.02
        )
        assert loop.time() - started < 0.9
        assert transport.get_extra_info("peername") == listener.getsockname()
        await finish(transport, protocol)
        for sock in fillers:
            sock.close()


async def test_local_address(loop, listener):
    transport, protocol = await loop.create_connection(
        Recorder, *listener.getsockname(), local_addr=("127.0.0.3", 0)
    )
    assert transport.get_extra_info("sockname")[0] == "127.0.0.3"
    await finish(transport, protocol)


async def test_local_address_in_use(loop, listener):
    with pytest.raises(OSError, match="bind") as caught:
        await loop.create_connection(
            Recorder, *listener.getsockname(), local_addr=listener.getsockname()
        )
    assert caught.value.errno == errno.EADDRINUSE


async def test_given_socket_is_used(loop, kind):
    near, far = tcp_pair()
    transport, protocol = await loop.create_connection(Recorder, sock=near)
    assert transport.get_extra_info("socket").fileno() == near.fileno()
    await finish(transport, protocol)
    assert near.fileno() == -1
    far.close()


async def test_given_blocking_socket_becomes_nonblocking(loop):
    near, far = tcp_pair()
    near.setblocking(True)
    transport, protocol = await loop.create_connection(Recorder, sock=near)
    assert near.gettimeout() == 0
    await finish(transport, protocol)
    far.close()


async def test_connected_by_sock_connect_then_handed_over(loop, listener):
    sock = socket.socket()
    sock.setblocking(False)
    await loop.sock_connect(sock, listener.getsockname())
    peer = accept(listener)
    await peer.send(b"early")
    transport, protocol = await loop.create_connection(Recorder, sock=sock)
    assert await protocol.until_received(5) == b"early"
    await finish(transport, protocol, peer)


async def test_nothing_to_connect_to_is_refused(loop):
    with pytest.raises(ValueError, match="host and port was not specified and no sock"):
        await loop.create_connection(Recorder)


async def test_socket_together_with_an_address_is_refused(loop):
    with socket.socket() as sock, pytest.raises(ValueError, match="host/port and sock"):
        await loop.create_connection(Recorder, LOOPBACK, 80, sock=sock)


async def test_datagram_socket_is_refused(loop):
    with (
        socket.socket(type=socket.SOCK_DGRAM) as sock,
        pytest.raises(ValueError, match="Stream Socket was expected"),
    ):
        await loop.create_connection(Recorder, sock=sock)


@differs_from_asyncio("it lets two transports share a socket", below=(3, 12))
async def test_socket_of_another_transport_is_refused(loop, kind):
    """Which goes on undisturbed."""
    near, far = socket_pair(kind)
    transport, protocol = await attach(loop, near, Recorder)
    with pytest.raises(RuntimeError, match="is used by transport"):
        await attach(loop, near, Recorder)
    far.send(b"hello")
    assert await protocol.until_received(5) == b"hello"
    transport.write(b"answer")
    assert await Peer(far).recv_exactly(6) == b"answer"
    transport.close()
    await protocol.until_lost()
    far.close()


async def test_ssl_options_without_ssl_are_refused(loop):
    for name, value in (
        ("server_hostname", "x"), ("ssl_handshake_timeout", 1.0), ("ssl_shutdown_timeout", 1.0)
    ):
        with pytest.raises(ValueError, match=name):
            await loop.create_connection(Recorder, LOOPBACK, 80, **{name: value})


@differs_from_asyncio("it leaves the socket to the garbage collector")
async def test_exception_in_the_factory_leaves_nothing_behind(loop, listener):
    def factory():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await loop.create_connection(factory, *listener.getsockname())
    peer = accept(listener)
    peer.close()


@pytest.mark.parametrize("steps", range(8))
async def test_cancelled_connect_leaves_nothing_behind(loop, listener, steps):
    """Cancelled after so many turns of the loop, wherever it is then."""
    protocols = []

    def factory():
        protocols.append(Recorder())
        return protocols[-1]

    task = loop.create_task(loop.create_connection(factory, *listener.getsockname()))
    await turns(steps)
    task.cancel()
    try:
        transport, protocol = await task
    except asyncio.CancelledError:
        await turns()
        for protocol in protocols:
            if protocol.transport is not None:
                protocol.transport.abort()
                await protocol.until_lost()
    else:
        await finish(transport, protocol)


async def test_cancelled_connect_to_a_silent_address(loop):
    with socket.socket() as full:
        full.bind((LOOPBACK, 0))
        full.listen(0)
        fillers = []
        for _ in range(4):
            sock = socket.socket()
            sock.setblocking(False)
            sock.connect_ex(full.getsockname())
            fillers.append(sock)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(
                loop.create_connection(Recorder, *full.getsockname()), 0.02
            )
        for sock in fillers:
            sock.close()


async def test_many_connections_at_once(loop):
    server = await loop.create_server(Echo, LOOPBACK, 0)
    where = server.sockets[0].getsockname()

    async def ask(i):
        transport, protocol = await loop.create_connection(Recorder, *where)
        transport.write(b"%d" % i)
        await protocol.until_received(len(b"%d" % i))
        transport.close()
        await protocol.until_lost()
        return int(protocol.received)

    assert await asyncio.gather(*(ask(i) for i in range(100))) == list(range(100))
    server.close()
    await quiet()


async def test_connection_made_has_run_when_connect_returns(loop, listener):
    transport, protocol = await loop.create_connection(Recorder, *listener.getsockname())
    assert protocol.names == ["connection_made"]
    await finish(transport, protocol)


async def test_peer_that_answers_and_closes_at_once(loop, listener):
    task = loop.create_task(loop.create_connection(Recorder, *listener.getsockname()))
    await until(lambda: _answer(listener))
    _, protocol = await task
    assert await protocol.until_lost() is None
    assert protocol.received == b"bye"


def _answer(listener):
    listener.setblocking(False)
    try:
        sock, _ = listener.accept()
    except BlockingIOError:
        return False
    with sock:
        sock.send(b"bye")
    return True


@pytest.mark.parametrize("host", ["localhost", LOOPBACK, b"127.0.0.1"])
async def test_getaddrinfo(loop, host):
    found = await loop.getaddrinfo(host, 80, type=socket.SOCK_STREAM, family=socket.AF_INET)
    assert (LOOPBACK, 80) in [entry[4] for entry in found]


async def test_getnameinfo(loop):
    host, port = await loop.getnameinfo((LOOPBACK, 80), socket.NI_NUMERICHOST
                                        | socket.NI_NUMERICSERV)
    assert (host, port) == (LOOPBACK, "80")
