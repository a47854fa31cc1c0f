"""Datagram endpoints: full queues, flow control, closing, and what the kernel is asked for."""
import asyncio
import contextlib
import contextvars
import gc
import socket
import warnings

import pytest
from support.datagrams import Datagrams, bound_sockets, endpoint, take, unused_address
from support.loops import differs_from_asyncio, eploop_only, only_mode, without_debug
from support.net import LOOPBACK, Peer
from support.waiting import is_idle, quiet, turns, until

HEADER = 8              # what a queued datagram counts for beyond its bytes
IP_RECVERR = 11
var = contextvars.ContextVar("var", default="unset")
keeps_count = differs_from_asyncio(
    "counts no headers; 3.13 counts them, and then never forgets them")


@pytest.fixture
def bound(tmp_path):
    with bound_sockets(tmp_path) as make:
        yield make


def fill(sock, *address):
    """Send until the queue of a unix peer is full; how many datagrams it took."""
    count = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            sock.sendto(b"filler", *address) if address else sock.send(b"filler")
            count += 1
    return count


@contextlib.asynccontextmanager
async def full_pair(loop, bound, factory=Datagrams):
    """An endpoint that is connected to a peer with a full queue; how much is in that."""
    far, near = bound("unix"), bound("unix")
    near.connect(far.getsockname())
    count = fill(near)
    async with endpoint(loop, near, factory) as (transport, protocol):
        yield transport, protocol, Peer(far), count


# A full queue.

async def test_queued_until_there_is_room(loop, bound):
    async with full_pair(loop, bound) as (transport, _, peer, count):
        expected = [b"%d" % number for number in range(3 * count)]
        for data in expected:
            transport.sendto(data)
        assert transport.get_write_buffer_size() > 0
        await take(peer, count)
        assert await take(peer, 3 * count) == expected
        await until(lambda: transport.get_write_buffer_size() < len(expected) * HEADER + 1)
        transport.sendto(b"more")
        assert await peer.recv() == b"more"


@pytest.mark.parametrize("turn_by_turn", [False, True])
async def test_queued_for_a_peer_that_is_not_connected(loop, bound, turn_by_turn):
    far, near = bound("unix"), bound("unix")
    count = fill(near, far.getsockname())
    peer = Peer(far)
    async with endpoint(loop, near) as (transport, _):
        expected = [b"%d" % number for number in range(2 * count)]
        for data in expected:
            transport.sendto(data, far.getsockname())
            if turn_by_turn:
                await asyncio.sleep(0)
        await take(peer, count)
        assert await take(peer, 2 * count) == expected


@eploop_only("asyncio asks the kernel again and again")
@without_debug("is about what the loop does while nothing can be done")
async def test_full_peer_that_is_not_connected_costs_nothing(loop, bound):
    far, near = bound("unix"), bound("unix")
    fill(near, far.getsockname())
    async with endpoint(loop, near) as (transport, _):
        transport.sendto(b"x", far.getsockname())
        before = loop.statistics()
        await asyncio.sleep(0.1)
        assert loop.statistics().polls - before.polls < 40


@keeps_count
async def test_size_of_the_queue(loop, bound):
    async with full_pair(loop, bound) as (transport, _, peer, count):
        assert transport.get_write_buffer_size() == 0
        transport.sendto(b"abc")
        transport.sendto(b"")
        assert transport.get_write_buffer_size() == 3 + 2 * HEADER
        await take(peer, count + 2)
        await until(lambda: transport.get_write_buffer_size() == 0)


@keeps_count
async def test_flow_control(loop, bound):
    async with full_pair(loop, bound) as (transport, protocol, peer, count):
        transport.set_write_buffer_limits(high=1000, low=100)
        assert transport.get_write_buffer_limits() == (100, 1000)
        transport.sendto(b"x" * (1000 - HEADER))
        assert not protocol.count("pause_writing")
        transport.sendto(b"")
        assert protocol.count("pause_writing") == 1
        transport.sendto(b"y")
        await take(peer, count + 3)
        await protocol.until_called("resume_writing")
        assert protocol.calls[-2:] == [
            ("pause_writing", 1000 + HEADER), ("resume_writing", 0)]


async def test_flow_control_of_large_datagrams(loop, bound):
    async with full_pair(loop, bound) as (transport, protocol, peer, count):
        for _ in range(5):
            transport.sendto(b"x" * 20_000)
        assert protocol.count("pause_writing") == 1
        await take(peer, count + 5)
        await protocol.until_called("resume_writing")


async def test_sending_from_resume_writing(loop, bound):
    class Sends(Datagrams):
        def resume_writing(self):
            super().resume_writing()
            self.transport.sendto(b"from resume_writing")

    async with full_pair(loop, bound, Sends) as (transport, _, peer, count):
        transport.set_write_buffer_limits(high=100)
        for _ in range(2):
            transport.sendto(b"x" * 100)
        got = await take(peer, count + 3)
        assert got[count:] == [b"x" * 100, b"x" * 100, b"from resume_writing"]


async def test_queued_data_is_a_copy(loop, bound):
    async with full_pair(loop, bound) as (transport, _, peer, count):
        data = bytearray(b"before")
        view = memoryview(data)
        transport.sendto(data)
        transport.sendto(view)
        data[:] = b"after!"
        view.release()
        data.clear()
        assert (await take(peer, count + 2))[count:] == [b"before"] * 2


async def test_error_in_the_middle_of_the_queue(loop, bound):
    far, near = bound("unix"), bound("unix")
    count = fill(near, far.getsockname())
    peer = Peer(far)
    async with endpoint(loop, near) as (transport, protocol):
        transport.sendto(b"first", far.getsockname())
        transport.sendto(b"lost", "/nowhere")
        transport.sendto(b"last", far.getsockname())
        assert (await take(peer, count + 2))[count:] == [b"first", b"last"]
        await until(lambda: len(protocol.errors) == 1)
        assert isinstance(protocol.errors[0], FileNotFoundError)
        assert not transport.is_closing()


async def test_wrong_address_in_the_queue(loop, bound, unhandled):
    far, near = bound("unix"), bound("unix")
    count = fill(near, far.getsockname())
    peer = Peer(far)
    async with endpoint(loop, near) as (transport, protocol):
        transport.sendto(b"first", far.getsockname())
        transport.sendto(b"bad", 5)
        transport.sendto(b"last", far.getsockname())
        assert (await take(peer, count + 1))[count:] == [b"first"]
        assert isinstance(await protocol.until_lost(), TypeError)
        unhandled.take_one()


# The end.

async def test_close(loop, bound):
    async with endpoint(loop, bound()) as (transport, protocol):
        transport.close()
        assert transport.is_closing()
        assert not protocol.count("connection_lost")
        transport.close()
        assert await protocol.until_lost() is None
        transport.close()
        transport.abort()
        await turns()
        assert protocol.names == ["connection_made", "connection_lost"]


async def test_close_flushes(loop, bound):
    async with full_pair(loop, bound) as (transport, protocol, peer, count):
        expected = [b"%d" % number for number in range(2 * count)]
        for data in expected:
            transport.sendto(data)
        transport.close()
        assert transport.is_closing()
        await quiet()
        assert not protocol.count("connection_lost")
        assert (await take(peer, 3 * count))[count:] == expected
        assert await protocol.until_lost() is None


async def test_nothing_is_delivered_after_close(loop, bound):
    async with full_pair(loop, bound) as (transport, protocol, peer, _):
        transport.sendto(b"x")
        transport.close()
        peer.sock.sendto(b"y", transport.get_extra_info("sockname"))
        await quiet()
        assert not protocol.datagrams
        assert not protocol.count("connection_lost")


async def test_abort_drops(loop, bound):
    async with full_pair(loop, bound) as (transport, protocol, peer, count):
        transport.sendto(b"x")
        transport.abort()
        assert transport.is_closing()
        assert await protocol.until_lost() is None
        await take(peer, count)
        assert peer.recv_now() == b""


async def test_abort_drops_what_a_retry_would_send(loop, bound):
    far, near = bound("unix"), bound("unix")
    count = fill(near, far.getsockname())
    async with endpoint(loop, near) as (transport, protocol):
        transport.sendto(b"x", far.getsockname())
        await quiet()
        transport.abort()
        await protocol.until_lost()
        await take(Peer(far), count)
        await quiet()


async def test_connected_sends_after_the_end(loop, bound):
    far = bound()
    async with endpoint(loop, remote_addr=far.getsockname()) as (transport, protocol):
        await sends_in_vain(transport, protocol, far)


@differs_from_asyncio("the first is sent, and the second reported as an AttributeError")
async def test_sends_after_the_end(loop, bound):
    far = bound()
    async with endpoint(loop, bound()) as (transport, protocol):
        await sends_in_vain(transport, protocol, far, far.getsockname())


async def sends_in_vain(transport, protocol, far, *address):
    transport.close()
    transport.sendto(b"late", *address)
    await protocol.until_lost()
    transport.sendto(b"late", *address)
    assert Peer(far).recv_now() == b""


async def test_close_in_datagram_received(loop, bound):
    class Closes(Datagrams):
        def datagram_received(self, data, addr):
            super().datagram_received(data, addr)
            self.transport.close()

    far, near = bound(), bound()
    for _ in range(3):
        far.sendto(b"x", near.getsockname())
    async with endpoint(loop, near, Closes) as (_, protocol):
        await protocol.until_lost()
        assert protocol.count("datagram_received") == 1


async def test_abort_in_error_received(loop):
    class Aborts(Datagrams):
        def error_received(self, exc):
            super().error_received(exc)
            self.transport.abort()

    address = unused_address()
    async with endpoint(loop, factory=Aborts, remote_addr=address) as (transport, protocol):
        transport.sendto(b"x")
        assert await protocol.until_lost() is None
        assert len(protocol.errors) == 1


async def test_close_before_connection_made(loop, bound):
    protocol = Datagrams()
    transport = loop._make_datagram_transport(bound(), protocol)
    transport.close()
    await protocol.until_lost()
    assert protocol.names == ["connection_made", "connection_lost"]


async def test_connection_made_raises(loop, bound, unhandled):
    class Raises(Datagrams):
        def connection_made(self, transport):
            super().connection_made(transport)
            raise ZeroDivisionError

    far = bound()
    async with endpoint(loop, bound(), Raises) as (transport, protocol):
        assert isinstance(unhandled.take_one()["exception"], ZeroDivisionError)
        far.sendto(b"x", transport.get_extra_info("sockname"))
        await protocol.until_called("datagram_received")


def test_forgotten_endpoint(loop, bound):
    sock = bound()
    transport, _ = loop.run_until_complete(loop.create_datagram_endpoint(Datagrams, sock=sock))
    loop.close()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del transport, _
        gc.collect()
    assert [w.category for w in caught] == [ResourceWarning]
    assert sock.fileno() == -1


# Asking.

async def test_extra_info(loop, bound):
    far, near = bound(), bound()
    near.connect(far.getsockname())
    name = near.getsockname()
    async with endpoint(loop, near) as (transport, protocol):
        for _ in range(2):
            assert transport.get_extra_info("socket").fileno() in (near.fileno(), -1)
            assert transport.get_extra_info("sockname") == name
            assert transport.get_extra_info("peername") == far.getsockname()
            assert transport.get_extra_info("nothing") is None
            assert transport.get_extra_info("nothing", 5) == 5
            transport.close()
            await protocol.until_lost()


async def test_no_peer(loop, bound):
    async with endpoint(loop, bound()) as (transport, _):
        assert transport.get_extra_info("peername", 5) is None


async def test_kind(loop, bound):
    async with endpoint(loop, bound()) as (transport, protocol):
        assert isinstance(transport, asyncio.BaseTransport)
        assert transport.get_protocol() is protocol


async def test_repr(loop, bound):
    async with full_pair(loop, bound) as (transport, protocol, _, _):
        fd = transport.get_extra_info("socket").fileno()
        assert f" fd={fd} read=polling write=<idle, bufsize=0>" in repr(transport)
        transport.sendto(b"x" * 100)
        assert f" fd={fd} read=polling write=<polling, bufsize=1" in repr(transport)
        transport.close()
        assert f" closing fd={fd} " in repr(transport)
        transport.abort()
        await protocol.until_lost()
        assert " closed" in repr(transport)


@eploop_only("asyncio keeps no statistics")
async def test_statistics(loop, bound):
    far = Peer(bound())
    before = loop.statistics()
    async with endpoint(loop, bound()) as (transport, protocol):
        assert loop.statistics().open_transports == before.open_transports + 1
        transport.sendto(b"12345", far.sock.getsockname())
        transport.sendto(b"67", ("localhost", far.sock.getsockname()[1]))
        far.sock.sendto(b"123", transport.get_extra_info("sockname"))
        await protocol.until_called("datagram_received")
        after = loop.statistics()
        assert after.bytes_sent - before.bytes_sent == 7
        assert after.bytes_received - before.bytes_received == 3
    assert loop.statistics().open_transports == before.open_transports


# Contexts.

@differs_from_asyncio("callbacks run in the context of whoever made the call")
async def test_one_context(loop, bound):
    seen = {}

    class Seeing(Datagrams):
        def note(self, name, *args):
            super().note(name, *args)
            seen[name] = var.get()
            if name == "connection_made":
                var.set("endpoint")

    def elsewhere(function, *args):
        context = contextvars.copy_context()
        context.run(var.set, "elsewhere")
        return context.run(function, *args)

    var.set("creator")
    async with full_pair(loop, bound, Seeing) as (transport, protocol, peer, count):
        elsewhere(transport.set_write_buffer_limits, 10)
        elsewhere(transport.sendto, b"x" * 100)
        peer.sock.sendto(b"x", transport.get_extra_info("sockname"))
        await take(peer, count + 1)
        await protocol.until_called("resume_writing")
        await protocol.until_called("datagram_received")
        elsewhere(transport.sendto, b"x" * 1_000_000)
        await protocol.until_called("error_received")
        elsewhere(transport.close)
        await protocol.until_lost()
    assert seen.pop("connection_made") == "creator"
    assert sorted(seen) == [
        "connection_lost", "datagram_received", "error_received", "pause_writing",
        "resume_writing"]
    assert set(seen.values()) == {"endpoint"}
    assert var.get() == "creator"


async def test_error_received_inside_a_callback(loop, bound):
    class Fails(Datagrams):
        def datagram_received(self, data, addr):
            super().datagram_received(data, addr)
            self.transport.sendto(b"x" * 70_000, addr)

    far = bound()
    async with endpoint(loop, bound(), Fails) as (transport, protocol):
        far.sendto(b"x", transport.get_extra_info("sockname"))
        await protocol.until_called("error_received")
        assert protocol.names == ["connection_made", "datagram_received", "error_received"]


# What the kernel is asked for.

async def exchange(loop, bound, count):
    """The growth of the statistics over some requests and answers, one by one."""
    far = Peer(bound())
    async with endpoint(loop, bound()) as (transport, protocol):
        await turns()
        before = loop.statistics()
        for number in range(count):
            far.sock.sendto(b"x", transport.get_extra_info("sockname"))
            await protocol.until_called("datagram_received", number + 1)
            transport.sendto(b"y", far.sock.getsockname())
            await far.recv()
        after = loop.statistics()
    return after.epoll_ctl_calls - before.epoll_ctl_calls, after.events - before.events


@only_mode("edge")
async def test_edge_mode_registers_once(loop, bound):
    assert await exchange(loop, bound, 10) == (0, 10)


@only_mode("level")
async def test_level_mode_registers_once(loop, bound):
    assert await exchange(loop, bound, 10) == (0, 10)


@only_mode("oneshot")
async def test_oneshot_mode_rearms_once_for_each_event(loop, bound):
    assert await exchange(loop, bound, 10) == (10, 10)


@eploop_only("asyncio keeps no statistics")
async def test_room_is_no_event_once_all_is_sent(loop, bound):
    async with full_pair(loop, bound) as (transport, _, peer, count):
        transport.sendto(b"x")
        await take(peer, count + 1)
        await until(lambda: transport.get_write_buffer_size() == 0)
        await quiet()
        before = loop.statistics()
        for _ in range(5):
            transport.sendto(b"x")
            await peer.recv()
            await quiet()
        assert loop.statistics().events == before.events


@eploop_only("asyncio asks the kernel again and again")
@without_debug("is about what the loop does while nothing can be done")
@pytest.mark.parametrize("how", [socket.SHUT_RD, socket.SHUT_RDWR])
@pytest.mark.parametrize("family", ["udp", "unix"])
async def test_shut_down_socket_costs_nothing(loop, bound, family, how):
    far, near = bound(family), bound(family)
    near.connect(far.getsockname())
    async with endpoint(loop, near) as (transport, protocol):
        near.shutdown(how)
        await quiet()
        before = loop.statistics()
        await asyncio.sleep(0.1)
        assert loop.statistics().polls - before.polls < 10
        assert protocol.count("datagram_received") <= 1
        if how == socket.SHUT_RD:
            transport.sendto(b"x")
            assert await Peer(far).recv() == b"x"


@eploop_only("asyncio asks the kernel again and again")
@without_debug("is about what the loop does while nothing can be done")
async def test_error_queue_costs_nothing(loop, bound):
    far, near = bound(), bound()
    address = unused_address()
    near.setsockopt(socket.IPPROTO_IP, IP_RECVERR, 1)
    async with endpoint(loop, near) as (transport, protocol):
        transport.sendto(b"x", address)
        await protocol.until_called("error_received")
        await quiet()
        before = loop.statistics()
        await asyncio.sleep(0.1)
        assert loop.statistics().polls - before.polls < 10
        assert near.recvmsg(100, 100, socket.MSG_ERRQUEUE)[0] == b"x"
        far.sendto(b"x", near.getsockname())
        await protocol.until_called("datagram_received")


async def test_idle_endpoints_use_no_time(loop, bound):
    async with full_pair(loop, bound) as (transport, _, _, _):
        transport.sendto(b"x")
        assert await is_idle(loop, 0.2)


async def test_addresses_of_the_loop(loop):
    async with endpoint(loop, local_addr=(LOOPBACK, 0)) as (one, _):
        address = one.get_extra_info("sockname")
        async with endpoint(loop, remote_addr=address) as (other, _):
            assert other.get_extra_info("peername") == address
