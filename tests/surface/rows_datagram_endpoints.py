"""create_datagram_endpoint."""
import socket

from support.datagrams import Datagrams, bound_sockets, endpoint, take
from support.net import LOOPBACK, Peer, has_ipv6
from support.waiting import turns

from surface.checks import descriptors, equal, raises, refused
from surface.rows import Unavailable, subject

row = subject("Datagram endpoints")


def option(transport, name):
    return bool(transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, name))


@row("create_datagram_endpoint(protocol_factory=, local_addr=)")
async def local_addr(loop):
    async with endpoint(loop, local_addr=("127.0.0.2", 0)) as (transport, protocol):
        equal(transport.get_extra_info("sockname")[0], "127.0.0.2")
        equal(protocol.names, ["connection_made"])
        assert protocol.transport is transport, "another transport"
    await turns(4)


@row("create_datagram_endpoint(remote_addr=)")
async def remote_addr(loop, folder):
    with bound_sockets(folder) as make:
        peer = make()
        async with endpoint(loop, remote_addr=peer.getsockname()) as (transport, _):
            transport.sendto(b"x")
            equal(await Peer(peer).recv(), b"x")
            equal(transport.get_extra_info("peername"), peer.getsockname())
        await turns(4)


@row("create_datagram_endpoint(local_addr=, remote_addr=) by name")
async def by_name(loop, folder):
    with bound_sockets(folder) as make:
        peer = make()
        port = peer.getsockname()[1]
        async with endpoint(loop, local_addr=("localhost", 0), remote_addr=("localhost", port),
                            family=socket.AF_INET) as (transport, _):
            equal(transport.get_extra_info("peername"), (LOOPBACK, port))
        await turns(4)


@row("create_datagram_endpoint(family=)")
async def family(loop):
    async with endpoint(loop, family=socket.AF_INET) as (transport, _):
        equal(transport.get_extra_info("socket").family, socket.AF_INET)
    if not has_ipv6():
        raise Unavailable("no IPv6")
    async with endpoint(loop, family=socket.AF_INET6, local_addr=("::1", 0)) as (transport, _):
        equal(transport.get_extra_info("socket").family, socket.AF_INET6)
    await turns(4)


@row("create_datagram_endpoint(proto=)")
async def proto(loop):
    async with endpoint(loop, local_addr=(LOOPBACK, 0), proto=socket.IPPROTO_UDP) as (
            transport, _):
        equal(transport.get_extra_info("socket").type, socket.SOCK_DGRAM)
    await turns(4)
    await refused(loop.create_datagram_endpoint(
        Datagrams, local_addr=(LOOPBACK, 0), proto=socket.IPPROTO_SCTP), OSError)


@row("create_datagram_endpoint(flags=)")
async def flags(loop):
    await refused(loop.create_datagram_endpoint(
        Datagrams, local_addr=("localhost", 0), flags=socket.AI_NUMERICHOST), socket.gaierror)


@row("create_datagram_endpoint(reuse_port=)")
async def reuse_port(loop):
    async with endpoint(loop, local_addr=(LOOPBACK, 0), reuse_port=True) as (transport, _):
        equal(option(transport, socket.SO_REUSEPORT), True)
        address = transport.get_extra_info("sockname")
        async with endpoint(loop, local_addr=address, reuse_port=True) as (second, _):
            equal(second.get_extra_info("sockname"), address)
        await refused(loop.create_datagram_endpoint(Datagrams, local_addr=address), OSError)
    await turns(4)


@row("create_datagram_endpoint(allow_broadcast=)")
async def allow_broadcast(loop):
    for wanted in (True, None):
        async with endpoint(loop, local_addr=("0.0.0.0", 0), allow_broadcast=wanted,
                            family=socket.AF_INET) as (transport, _):
            equal(option(transport, socket.SO_BROADCAST), bool(wanted))
    await turns(4)


@row("create_datagram_endpoint(sock=)")
async def sock(loop, folder):
    with bound_sockets(folder) as make:
        near, far = make(), make()
        async with endpoint(loop, near) as (transport, _):
            equal(transport.get_extra_info("socket").fileno(), near.fileno())
            transport.sendto(b"x", far.getsockname())
            equal(await Peer(far).recv(), b"x")
            with raises(ValueError):
                await loop.create_datagram_endpoint(
                    Datagrams, sock=far, local_addr=(LOOPBACK, 0))
        await turns(4)


@row("AF_UNIX datagrams")
async def unix(loop, folder):
    path = str(folder / "near")
    with bound_sockets(folder) as make:
        peer = make("unix")
        async with endpoint(loop, family=socket.AF_UNIX, local_addr=path) as (transport, protocol):
            transport.sendto(b"x", peer.getsockname())
            equal(await Peer(peer).recv(), b"x")
            peer.sendto(b"back", path)
            await protocol.until_called("datagram_received")
            equal((protocol.datagrams, protocol.senders), ([b"back"], [peer.getsockname()]))
        await turns(4)


@row("sock= of a pair of sockets without names")
async def unnamed(loop):
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    async with endpoint(loop, near) as (transport, _protocol):
        transport.sendto(b"x")
        equal(await take(Peer(far), 1), [b"x"])
    far.close()
    await turns(4)


@row("sock= of another family: netlink")
async def netlink(loop):
    try:
        sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
    except (OSError, AttributeError) as exc:
        raise Unavailable("no netlink") from exc
    sock.bind((0, 0))
    # RTM_GETLINK of all links: struct nlmsghdr and rtgenmsg.
    request = b"\x14\0\0\0\x12\0\x01\x03" + bytes(8) + b"\0\0\0\0"
    async with endpoint(loop, sock) as (transport, protocol):
        transport.sendto(request, (0, 0))
        await protocol.until_called("datagram_received")
        assert len(protocol.datagrams[0]) > 20, protocol.datagrams
    await turns(4)


@row("sock= of packets in order: SOCK_SEQPACKET")
async def seqpacket(loop):
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    far.setblocking(False)
    near.setblocking(False)
    try:
        async with endpoint(loop, near) as (transport, protocol):
            transport.sendto(b"x")
            equal(await Peer(far).recv(), b"x")
            far.send(b"back")
            await protocol.until_called("datagram_received")
            equal(protocol.datagrams, [b"back"])
        await turns(4)
    finally:
        far.close()
        near.close()


@row("an address in use is an OSError, and leaves no descriptor behind")
async def in_use(loop, folder):
    with bound_sockets(folder) as make:
        taken = make().getsockname()
        before = descriptors()
        await refused(loop.create_datagram_endpoint(Datagrams, local_addr=taken), OSError)
        await turns(4)
        equal(descriptors(), before)
