"""Datagram endpoints: what goes in and out, over both versions of IP and unix sockets."""
import asyncio
import errno
import itertools
import socket
import struct
import time

import pytest
from support.datagrams import Datagrams, bound_sockets, endpoint, take, unused_address
from support.loops import differs_from_asyncio, eploop_only
from support.net import LOOPBACK, Peer, has_ipv6
from support.waiting import quiet, until

FAMILIES = (
    "udp",
    pytest.param("udp6", marks=pytest.mark.skipif(not has_ipv6(), reason="no IPv6")),
    "unix",
)
sends_empty = differs_from_asyncio("an empty datagram is not sent", below=(3, 13))


@pytest.fixture(params=FAMILIES)
def family(request):
    return request.param


@pytest.fixture
def bound(tmp_path):
    with bound_sockets(tmp_path) as make:
        yield make


# What comes in.

@pytest.mark.parametrize("size", [0, 1, 1472, 65507])
async def test_datagrams_arrive_whole(loop, bound, family, size):
    far = bound(family)
    data = bytes(range(256)) * 256
    async with endpoint(loop, bound(family)) as (transport, protocol):
        for _ in range(2):
            far.sendto(data[:size], transport.get_extra_info("sockname"))
        await protocol.until_called("datagram_received", 2)
        assert protocol.datagrams == [data[:size]] * 2
        assert protocol.senders == [far.getsockname()] * 2


async def test_large_unix_datagram(loop, bound):
    far = bound("unix")
    async with endpoint(loop, bound("unix")) as (transport, protocol):
        far.sendto(b"x" * 150_000, transport.get_extra_info("sockname"))
        await protocol.until_called("datagram_received")
        assert protocol.datagrams == [b"x" * 150_000]


async def test_burst(loop, bound):
    far = bound()
    near = bound()
    expected = [b"%d" % number for number in range(200)]
    for data in expected[:100]:
        far.sendto(data, near.getsockname())
    async with endpoint(loop, near) as (_, protocol):
        for data in expected[100:]:
            far.sendto(data, near.getsockname())
        await protocol.until_called("datagram_received", 200)
        assert protocol.datagrams == expected


@eploop_only("asyncio takes one datagram a turn")
async def test_others_run_during_a_burst(loop, bound):
    far = bound()
    near = bound()
    for _ in range(100):
        far.sendto(b"x", near.getsockname())
    counts = []
    async with endpoint(loop, near) as (_, protocol):
        while protocol.count("datagram_received") < 100:
            counts.append(protocol.count("datagram_received"))
            await asyncio.sleep(0)
    steps = [after - before for before, after in itertools.pairwise(counts)]
    assert max(steps) <= 32


async def test_senders_without_a_name(loop, bound):
    async with endpoint(loop, bound("unix")) as (transport, protocol):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as far:
            far.sendto(b"x", transport.get_extra_info("sockname"))
            await protocol.until_called("datagram_received")
            assert protocol.senders == [None]


@eploop_only("asyncio makes a new address each time")
async def test_address_object_is_kept(loop, bound, family):
    one, other = bound(family), bound(family)
    async with endpoint(loop, bound(family)) as (transport, protocol):
        for sock in (one, one, one, other, one):
            sock.sendto(b"x", transport.get_extra_info("sockname"))
        await protocol.until_called("datagram_received", 5)
        senders = protocol.senders
        assert senders[0] is senders[1] is senders[2]
        assert senders == [sock.getsockname() for sock in (one, one, one, other, one)]


async def test_pause_and_resume_reading(loop, bound):
    far = bound()
    async with endpoint(loop, bound()) as (transport, protocol):
        transport.pause_reading()
        transport.pause_reading()
        assert not transport.is_reading()
        for _ in range(3):
            far.sendto(b"x", transport.get_extra_info("sockname"))
            await quiet()
        assert not protocol.datagrams
        transport.resume_reading()
        transport.resume_reading()
        assert transport.is_reading()
        assert not protocol.datagrams
        await protocol.until_called("datagram_received", 3)


async def test_pause_in_the_middle_of_a_burst(loop, bound):
    class Pauses(Datagrams):
        def datagram_received(self, data, addr):
            super().datagram_received(data, addr)
            self.transport.pause_reading()

    far, near = bound(), bound()
    for _ in range(3):
        far.sendto(b"x", near.getsockname())
    async with endpoint(loop, near, Pauses) as (transport, protocol):
        for number in range(1, 4):
            await protocol.until_called("datagram_received", number)
            await quiet()
            assert protocol.count("datagram_received") == number
            transport.resume_reading()


async def test_set_protocol(loop, bound):
    far = bound()
    async with endpoint(loop, bound()) as (transport, protocol):
        other = Datagrams()
        transport.set_protocol(other)
        assert transport.get_protocol() is other
        far.sendto(b"x", transport.get_extra_info("sockname"))
        await other.until_called("datagram_received")
        transport.set_protocol(protocol)


# What goes out.

@sends_empty
@pytest.mark.parametrize("connected", [False, True])
async def test_empty_datagram_is_sent(loop, bound, family, connected):
    far = Peer(bound(family))
    near = bound(family)
    if connected:
        near.connect(far.sock.getsockname())
    async with endpoint(loop, near) as (transport, _):
        transport.sendto(b"", None if connected else far.sock.getsockname())
        transport.sendto(b"x", None if connected else far.sock.getsockname())
        assert await take(far, 2) == [b"", b"x"]


@pytest.mark.parametrize("size", [1, 1472, 65507])
async def test_datagrams_go_out_whole(loop, bound, family, size):
    far, other = Peer(bound(family)), Peer(bound(family))
    async with endpoint(loop, bound(family)) as (transport, _):
        for peer in (far, other, far, far):
            transport.sendto(b"x" * size, peer.sock.getsockname())
        for peer in (far, other, far, far):
            assert await peer.recv(70_000) == b"x" * size


async def test_answer_to_the_sender(loop, bound, family):
    class Echo(Datagrams):
        def datagram_received(self, data, addr):
            self.transport.sendto(data.upper(), addr)

    far, other = Peer(bound(family)), Peer(bound(family))
    async with endpoint(loop, bound(family), Echo) as (transport, _):
        for peer in (far, other, far):
            peer.sock.sendto(b"abc", transport.get_extra_info("sockname"))
        for peer in (far, other, far):
            assert await peer.recv() == b"ABC"


@pytest.mark.parametrize("data", [
    bytearray(b"abcd"), memoryview(b"abcd"), memoryview(b"abcd").cast("I"),
    type("Sub", (bytes,), {})(b"abcd"),
], ids=["bytearray", "memoryview", "wide items", "subclass of bytes"])
async def test_kinds_of_data(loop, bound, data):
    far = Peer(bound())
    async with endpoint(loop, bound()) as (transport, _):
        transport.sendto(data, far.sock.getsockname())
        assert await far.recv() == b"abcd"


@differs_from_asyncio("the endpoint is closed with a BufferError")
async def test_data_with_gaps(loop, bound):
    far = Peer(bound())
    async with endpoint(loop, bound()) as (transport, _):
        transport.sendto(memoryview(b"a-b-")[::2], far.sock.getsockname())
        assert await far.recv() == b"ab"


@pytest.mark.parametrize("data", ["text", 5, None, [1]])
async def test_wrong_data(loop, bound, data):
    async with endpoint(loop, bound()) as (transport, _):
        with pytest.raises(TypeError, match="data argument must be a bytes-like object, not '"):
            transport.sendto(data, (LOOPBACK, 9))
        assert not transport.is_closing()


async def test_host_name(loop, bound):
    far = Peer(bound())
    async with endpoint(loop, bound()) as (transport, _):
        transport.sendto(b"x", ("localhost", far.sock.getsockname()[1]))
        transport.sendto(b"y", (LOOPBACK, far.sock.getsockname()[1]))
        assert await take(far, 2) == [b"x", b"y"]


@pytest.mark.parametrize(("address", "kind"), [
    (None, TypeError), ("127.0.0.1", TypeError), (("127.0.0.1",), TypeError),
    ((LOOPBACK, 65536), OverflowError), ((LOOPBACK, -1), OverflowError),
    ((LOOPBACK, "9"), TypeError), (("127.0.0.1\0", 9), None), ([LOOPBACK, 9], TypeError),
])
async def test_wrong_address_ends_the_endpoint(loop, bound, unhandled, address, kind):
    far = bound()
    async with endpoint(loop, bound()) as (transport, protocol):
        transport.sendto(b"good", far.getsockname())
        transport.sendto(b"bad", address)
        exc = await protocol.until_lost()
        assert kind is None or isinstance(exc, kind)
        context = unhandled.take_one()
        assert context["message"] == "Fatal write error on datagram transport"
        assert context["exception"] is exc
        assert context["transport"] is transport


async def test_address_of_another_family(loop, bound):
    async with endpoint(loop, bound()) as (transport, protocol):
        transport.sendto(b"x", ("::1", 9))
        assert isinstance(protocol.errors[0], socket.gaierror)
        assert not transport.is_closing()


@pytest.mark.skipif(not has_ipv6(), reason="no IPv6")
async def test_forms_of_ipv6_addresses(loop, bound):
    far = Peer(bound("udp6"))
    port = far.sock.getsockname()[1]
    async with endpoint(loop, bound("udp6")) as (transport, protocol):
        for address in (("::1", port), ("::1", port, 0), ("::1", port, 0, 0), ("0:0::0:1", port)):
            transport.sendto(b"x", address)
            assert await far.recv() == b"x", (address, protocol.errors)


@pytest.mark.parametrize("as_text", [False, True])
async def test_abstract_unix_address(loop, as_text):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as far:
        far.bind("")
        name = far.getsockname()
        async with endpoint(loop, family=socket.AF_UNIX) as (transport, _):
            transport.sendto(b"x", name.decode() if as_text else name)
            assert await Peer(far).recv() == b"x"


async def test_broadcast_needs_permission(loop):
    everyone = ("127.255.255.255", unused_address()[1])
    async with endpoint(loop, local_addr=(LOOPBACK, 0)) as (transport, protocol):
        transport.sendto(b"x", everyone)
        assert [type(exc) for exc in protocol.errors] == [PermissionError]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as far:
        far.bind(everyone)
        async with endpoint(loop, local_addr=(LOOPBACK, 0), allow_broadcast=True) as (transport, _):
            transport.sendto(b"x", everyone)
            assert await Peer(far).recv() == b"x"


async def test_remote_address_without_connecting(loop, bound):
    far = Peer(bound())
    options = {"remote_addr": far.sock.getsockname(), "allow_broadcast": True}
    async with endpoint(loop, **options) as (transport, _):
        assert transport.get_extra_info("peername") is None
        transport.sendto(b"x")
        assert await far.recv() == b"x"
        with pytest.raises(ValueError, match="Invalid address: must be None or "):
            transport.sendto(b"x", (LOOPBACK, 9))


async def test_connected(loop, bound):
    far = Peer(bound())
    address = far.sock.getsockname()
    async with endpoint(loop, remote_addr=address) as (transport, protocol):
        assert transport.get_extra_info("peername") == address
        transport.sendto(b"x")
        transport.sendto(b"y", address)
        transport.sendto(b"z", None)
        assert await take(far, 3) == [b"x", b"y", b"z"]
        with pytest.raises(ValueError, match="Invalid address: must be None or "):
            transport.sendto(b"x", (LOOPBACK, 9))
        far.sock.sendto(b"answer", transport.get_extra_info("sockname"))
        await protocol.until_called("datagram_received")
        assert protocol.senders == [address]


async def test_connected_beforehand(loop, bound):
    far, near = Peer(bound()), bound()
    near.connect(far.sock.getsockname())
    async with endpoint(loop, near) as (transport, _):
        transport.sendto(b"x")
        assert await far.recv() == b"x"


@differs_from_asyncio("the endpoint is closed with a TypeError")
async def test_pair_of_unnamed_sockets(loop):
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with far:
        async with endpoint(loop, near) as (transport, protocol):
            transport.sendto(b"x")
            assert await Peer(far).recv() == b"x"
            far.send(b"")
            far.send(b"y")
            await protocol.until_called("datagram_received", 2)
            assert protocol.datagrams == [b"", b"y"]


async def test_family_that_only_the_socket_module_knows(loop):
    sock = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, socket.NETLINK_ROUTE)
    # RTM_GETLINK, NLM_F_REQUEST | NLM_F_DUMP
    request = struct.pack("=IHHII", 32, 18, 0x301, 1, 0) + bytes(16)
    async with endpoint(loop, sock) as (transport, protocol):
        for number in range(1, 3):
            transport.sendto(request, (0, 0))
            await protocol.until_called("datagram_received", number)
        assert protocol.senders[0] == (0, 0)
        assert not protocol.errors


@differs_from_asyncio("it lets two transports share a socket", below=(3, 12))
async def test_socket_of_another_transport_is_refused(loop, bound):
    sock, far = bound(), bound()
    async with endpoint(loop, sock) as (_, protocol):
        with pytest.raises(RuntimeError, match="is used by transport"):
            await loop.create_datagram_endpoint(Datagrams, sock=sock)
        far.sendto(b"x", sock.getsockname())
        await protocol.until_called("datagram_received")


@differs_from_asyncio("wants a datagram socket by its type", below=(3, 13))
async def test_raw_socket(loop):
    sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
    request = struct.pack("=IHHII", 32, 18, 0x301, 1, 0) + bytes(16)
    async with endpoint(loop, sock) as (transport, protocol):
        transport.sendto(request, (0, 0))
        await protocol.until_called("datagram_received")
        assert protocol.senders[0] == (0, 0)


@eploop_only("asyncio sends an unnamed socket nothing but errors")
async def test_packets_in_order(loop):
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with far:
        far.setblocking(False)
        async with endpoint(loop, near) as (transport, protocol):
            far.send(b"one")
            far.send(b"two")
            await protocol.until_called("datagram_received", 2)
            assert protocol.datagrams == [b"one", b"two"]
            transport.sendto(b"three")
            assert await take(Peer(far), 1) == [b"three"]


async def test_stream_socket_is_refused(loop):
    with socket.socket() as sock, pytest.raises(ValueError, match="was expected"):
        await loop.create_datagram_endpoint(Datagrams, sock=sock)


# Errors.

async def test_refused_datagram(loop, bound):
    address = unused_address()
    async with endpoint(loop, remote_addr=address) as (transport, protocol):
        transport.sendto(b"anyone?")
        await protocol.until_called("error_received")
        assert isinstance(protocol.errors[0], ConnectionRefusedError)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as far:
            far.bind(address)
            transport.sendto(b"hello")
            assert await Peer(far).recv() == b"hello"
            far.sendto(b"answer", transport.get_extra_info("sockname"))
            await protocol.until_called("datagram_received")


async def test_datagrams_behind_an_error(loop, bound):
    far, near = bound(), bound()
    near.connect(far.getsockname())
    address = far.getsockname()
    far.sendto(b"before", near.getsockname())
    far.close()
    near.send(b"refused")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as again:
        again.bind(address)
        again.sendto(b"after", near.getsockname())
        async with endpoint(loop, near) as (_, protocol):
            await protocol.until_called("datagram_received", 2)
            assert protocol.datagrams == [b"before", b"after"]
            assert [type(exc) for exc in protocol.errors] == [ConnectionRefusedError]


async def test_refused_by_send(loop, bound):
    async with endpoint(loop, bound()) as (transport, protocol):
        transport.sendto(b"x" * 70_000, transport.get_extra_info("sockname"))
        assert [exc.errno for exc in protocol.errors] == [errno.EMSGSIZE]
        assert not transport.is_closing()
        transport.sendto(b"self", transport.get_extra_info("sockname"))
        await protocol.until_called("datagram_received")


@pytest.mark.parametrize("by_socket", [False, True])
async def test_error_received_raises(loop, bound, by_socket):
    class Raises(Datagrams):
        def error_received(self, exc):
            super().error_received(exc)
            raise ZeroDivisionError

    host = "localhost" if by_socket else LOOPBACK
    async with endpoint(loop, bound(), Raises) as (transport, _):
        with pytest.raises(ZeroDivisionError):
            transport.sendto(b"x" * 70_000, (host, 9))
        assert not transport.is_closing()


async def test_error_received_raises_while_reading(loop, unhandled):
    class Raises(Datagrams):
        def error_received(self, exc):
            super().error_received(exc)
            raise ZeroDivisionError

    address = unused_address()
    async with endpoint(loop, factory=Raises, remote_addr=address) as (transport, protocol):
        transport.sendto(b"x")
        await protocol.until_called("error_received")
        await until(lambda: len(unhandled) > 0)
        assert isinstance(unhandled.take_one()["exception"], ZeroDivisionError)
        assert not transport.is_closing()


async def test_datagram_received_raises(loop, bound, unhandled):
    class Raises(Datagrams):
        def datagram_received(self, data, addr):
            super().datagram_received(data, addr)
            if data == b"bad":
                raise ZeroDivisionError

    far, near = bound(), bound()
    for data in (b"good", b"bad", b"good"):
        far.sendto(data, near.getsockname())
    async with endpoint(loop, near, Raises) as (transport, protocol):
        await protocol.until_called("datagram_received", 3)
        assert isinstance(unhandled.take_one()["exception"], ZeroDivisionError)
        assert not transport.is_closing()


def test_system_exit_keeps_the_rest(loop, bound):
    class Exits(Datagrams):
        def datagram_received(self, data, addr):
            super().datagram_received(data, addr)
            if data == b"exit":
                raise SystemExit(3)

    protocol = Exits()
    far, near = bound(), bound()
    loop.run_until_complete(loop.create_datagram_endpoint(lambda: protocol, sock=near))
    for data in (b"exit", b"rest"):
        far.sendto(data, near.getsockname())
    with pytest.raises(SystemExit):
        loop.run_forever()

    async def rest():
        await protocol.until_called("datagram_received", 2)
        protocol.transport.close()
        await protocol.until_lost()

    loop.run_until_complete(rest())


async def test_whoever_awaits_the_endpoint_goes_before_its_datagrams(loop, bound, family):
    def slowly():
        time.sleep(0.002)       # the loop asks the kernel again before it calls connection_made
        return Datagrams()

    far, near = bound(family), bound(family)
    far.sendto(b"early", near.getsockname())
    async with endpoint(loop, near, slowly) as (_, protocol):
        assert protocol.names == ["connection_made"]
        await protocol.until_called("datagram_received")
        assert protocol.datagrams == [b"early"]
