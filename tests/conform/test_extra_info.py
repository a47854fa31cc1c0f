"""What a transport tells about its connection, and the options that it sets."""
import socket

from support.loops import differs_from_asyncio
from support.net import attach, connected, socket_pair, tcp_pair
from support.protocols import Recorder
from support.waiting import turns


async def test_addresses(loop):
    near, far = tcp_pair()
    ours, theirs = near.getsockname(), near.getpeername()
    transport, protocol = await attach(loop, near, Recorder)
    assert transport.get_extra_info("sockname") == ours == far.getpeername()
    assert transport.get_extra_info("peername") == theirs == far.getsockname()
    transport.abort()
    await protocol.until_lost()
    far.close()


async def test_addresses_of_an_unnamed_unix_socket(loop):
    async with connected(loop, "unix", Recorder) as (transport, _, _peer):
        assert transport.get_extra_info("sockname") == ""
        assert not transport.get_extra_info("peername")


async def test_addresses_are_known_in_connection_made(loop, kind):
    class Asks(Recorder):
        def connection_made(self, transport):
            self.asked = {
                name: transport.get_extra_info(name) for name in ("sockname", "peername", "socket")
            }
            super().connection_made(transport)

    async with connected(loop, kind, Asks) as (transport, protocol, _):
        for name in ("sockname", "peername"):
            assert protocol.asked[name] == transport.get_extra_info(name)
        assert protocol.asked["socket"].fileno() == transport.get_extra_info("socket").fileno()


async def test_addresses_are_known_in_connection_lost_and_later(loop):
    class Asks(Recorder):
        def connection_lost(self, exc):
            self.asked = self.transport.get_extra_info("peername")
            super().connection_lost(exc)

    near, far = tcp_pair()
    ours, theirs = near.getsockname(), near.getpeername()
    transport, protocol = await attach(loop, near, Asks)
    far.close()
    await protocol.until_lost()
    assert protocol.asked == theirs
    await turns()
    assert transport.get_extra_info("peername") == theirs
    assert transport.get_extra_info("sockname") == ours


async def test_peer_name_is_known_after_a_reset(loop):
    async with connected(loop, "tcp", Recorder) as (transport, protocol, peer):
        theirs = peer.sock.getsockname()
        peer.reset()
        await protocol.until_lost()
        assert transport.get_extra_info("peername") == theirs


async def test_socket(loop, kind):
    near, far = socket_pair(kind)
    number, family = near.fileno(), near.family
    transport, protocol = await attach(loop, near, Recorder)
    sock = transport.get_extra_info("socket")
    assert sock.fileno() == number
    assert sock.family == family
    assert sock.type == socket.SOCK_STREAM
    assert sock.gettimeout() == 0
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    assert sock.getsockname() == near.getsockname()
    transport.abort()
    await protocol.until_lost()
    far.close()


async def test_socket_cannot_be_read_or_written(loop, kind):
    """The user must not take the bytes of the transport away."""
    async with connected(loop, kind, Recorder) as (transport, _, _peer):
        sock = transport.get_extra_info("socket")
        assert not hasattr(sock, "recv")
        assert not hasattr(sock, "send")
        assert not hasattr(sock, "close")


async def test_socket_is_known_to_be_closed_afterwards(loop, kind):
    async with connected(loop, kind, Recorder) as (transport, protocol, _):
        sock = transport.get_extra_info("socket")
        transport.close()
        await protocol.until_lost()
        await turns()
        assert sock.fileno() == -1


async def test_unknown_names_give_the_default(loop, kind):
    async with connected(loop, kind, Recorder) as (transport, _, _peer):
        assert transport.get_extra_info("nonsense") is None
        assert transport.get_extra_info("nonsense", 5) == 5
        for name in ("sslcontext", "ssl_object", "peercert", "cipher"):
            assert transport.get_extra_info(name) is None


async def test_tcp_connections_do_not_delay_small_packets(loop):
    listener = socket.create_server(("127.0.0.1", 0))
    with listener, socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as sock:
        sock.connect(listener.getsockname())
        sock.setblocking(False)
        transport, protocol = await attach(loop, sock, Recorder)
        sock = transport.get_extra_info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        transport.abort()
        await protocol.until_lost()


@differs_from_asyncio("it looks at the protocol number of the socket object, which is often zero")
async def test_tcp_connections_of_any_socket_do_not_delay_small_packets(loop):
    async with connected(loop, "tcp", Recorder) as (transport, _, _peer):
        sock = transport.get_extra_info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


@differs_from_asyncio("it looks at the protocol number of the socket object, which is often zero")
async def test_accepted_connections_do_not_delay_small_packets(loop):
    accepted = []

    def factory():
        accepted.append(Recorder())
        return accepted[-1]

    server = await loop.create_server(factory, "127.0.0.1", 0)
    client, protocol = await loop.create_connection(Recorder, *server.sockets[0].getsockname())
    client.write(b"x")
    while not accepted:
        await turns()
    await accepted[0].until_received(1)
    for transport in (client, accepted[0].transport):
        sock = transport.get_extra_info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
    client.close()
    await protocol.until_lost()
    await accepted[0].until_lost()
    server.close()
    await server.wait_closed()


async def test_programs_read_whether_a_transport_is_paused_or_closing(loop, kind):
    """By names that asyncio and uvloop share."""
    async with connected(loop, kind, Recorder) as (transport, protocol, _):
        assert not transport._paused
        transport.pause_reading()
        assert transport._paused
        assert not transport._closing
        transport.close()
        assert transport._closing
        await protocol.until_lost()
