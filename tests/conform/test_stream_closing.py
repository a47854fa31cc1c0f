"""How a connection ends: close, abort, half close, errors of the peer and of the protocol."""
import asyncio
import contextlib
import gc
import os
import socket
import weakref

import pytest
from support.loops import differs_from_asyncio, without_debug
from support.net import (
    BIG,
    Peer,
    attach,
    connected,
    socket_pair,
    tcp_pair,
    unix_pair,
)
from support.protocols import BufferedRecorder, HalfOpenRecorder, Recorder
from support.waiting import is_idle, quiet, turns, until


async def test_close_tells_both_sides(loop, kind):
    async with connected(loop, kind, Recorder) as (transport, protocol, peer):
        transport.close()
        assert transport.is_closing()
        assert await protocol.until_lost() is None
        assert await peer.recv() == b""


async def test_connection_lost_comes_later_and_once(loop, kind):
    async with connected(loop, kind, Recorder) as (transport, protocol, _):
        transport.close()
        assert protocol.count("connection_lost") == 0
        transport.close()
        transport.abort()
        await protocol.until_lost()
        transport.close()
        transport.abort()
        await turns()
        assert protocol.names == ["connection_made", "connection_lost"]


@without_debug("moves megabytes")
async def test_close_sends_everything_first(loop, kind):
    async with connected(loop, kind, Recorder) as (transport, protocol, peer):
        data = os.urandom(BIG)
        transport.write(data)
        transport.close()
        assert transport.is_closing()
        assert await peer.recv_all() == data
        assert await protocol.until_lost() is None


async def test_close_sends_the_coalesced_writes_of_the_turn(loop, kind):
    async with connected(loop, kind, Recorder) as (transport, protocol, peer):
        for piece in (b"one", b"two", b"three"):
            transport.write(piece)
        transport.close()
        assert await peer.recv_all() == b"onetwothree"
        assert await protocol.until_lost() is None


async def test_write_after_close_is_silent(loop, kind, unhandled):
    async with connected(loop, kind, Recorder) as (transport, protocol, peer):
        transport.write(b"before")
        transport.close()
        transport.write(b"after")
        await protocol.until_lost()
        for _ in range(10):
            transport.write(b"long after")
        assert await peer.recv_all() == b"before"


@differs_from_asyncio("writelines after the end fails inside the transport", since=(3, 12))
async def test_writelines_after_close_is_silent(loop, kind, unhandled):
    async with connected(loop, kind, Recorder) as (transport, protocol, peer):
        transport.write(b"before")
        transport.close()
        transport.writelines([b"after", b"after"])
        await protocol.until_lost()
        for _ in range(10):
            transport.writelines([b"long", b"after"])
        assert await peer.recv_all() == b"before"


@differs_from_asyncio("abort after a close that had to flush runs into a None")
async def test_abort_after_the_end_does_nothing(loop, kind):
    async with connected(loop, kind, Recorder) as (transport, protocol, peer):
        transport.write(b"x" * BIG)
        transport.close()
        assert len(await peer.recv_all()) == BIG
        await protocol.until_lost()
        await turns()
        transport.abort()
        transport.close()
        await turns()
        assert protocol.count("connection_lost") == 1


async def test_write_after_close_while_data_are_queued(loop, kind):
    async with connected(loop, kind, Recorder, send_buffer=4096) as (transport, protocol, peer):
        data = os.urandom(1 << 20)
        transport.write(data)
        transport.close()
        transport.write(b"after")
        received = await peer.recv_all()
        assert received in (data, data + b"after")
        assert await protocol.until_lost() is None


async def test_abort_drops_what_is_queued(loop, kind):
    async with connected(loop, kind, Recorder) as (transport, protocol, peer):
        transport.write(b"x" * BIG)
        transport.abort()
        assert transport.is_closing()
        assert await protocol.until_lost() is None
        assert transport.get_write_buffer_size() == 0
        with contextlib.suppress(ConnectionResetError):
            assert len(await peer.recv_all()) < BIG


async def test_abort_after_close_does_not_wait_for_the_queue(loop, kind):
    async with connected(loop, kind, Recorder) as (transport, protocol, _):
        transport.write(b"x" * BIG)
        transport.close()
        await turns()
        assert protocol.count("connection_lost") == 0
        transport.abort()
        assert await protocol.until_lost() is None


async def test_write_in_connection_lost_is_silent(loop, kind):
    class Stubborn(Recorder):
        def connection_lost(self, exc):
            super().connection_lost(exc)
            self.transport.write(b"too late")
            self.transport.close()
            self.transport.abort()

    async with connected(loop, kind, Stubborn) as (transport, protocol, peer):
        transport.close()
        await protocol.until_lost()
        await turns()
        assert protocol.count("connection_lost") == 1
        assert await peer.recv_all() == b""


async def test_half_close_then_read_to_the_end(loop, kind):
    async with connected(loop, kind, Recorder) as (transport, protocol, peer):
        assert transport.can_write_eof()
        transport.write(b"request")
        transport.write_eof()
        assert await peer.recv_all() == b"request"
        assert not transport.is_closing()
        await peer.send(b"answer")
        assert await protocol.until_received(6) == b"answer"
        peer.close()
        assert await protocol.until_lost() is None


@without_debug("moves megabytes")
async def test_half_close_sends_everything_first(loop, kind):
    async with connected(loop, kind, Recorder) as (transport, _, peer):
        data = os.urandom(BIG)
        transport.write(data)
        transport.write_eof()
        assert await peer.recv_all() == data


async def test_half_close_sends_the_coalesced_writes_of_the_turn(loop, kind):
    async with connected(loop, kind, Recorder) as (transport, _, peer):
        for piece in (b"one", b"two", b"three"):
            transport.write(piece)
        transport.write_eof()
        assert await peer.recv_all() == b"onetwothree"


async def test_half_close_twice(loop, kind):
    async with connected(loop, kind, Recorder) as (transport, protocol, peer):
        transport.write_eof()
        transport.write_eof()
        assert await peer.recv_all() == b""
        transport.close()
        assert await protocol.until_lost() is None


async def test_write_after_half_close_is_an_error(loop, kind):
    async with connected(loop, kind, Recorder) as (transport, _, peer):
        transport.write_eof()
        with pytest.raises(RuntimeError, match="write_eof"):
            transport.write(b"x")
        assert await peer.recv_all() == b""


@pytest.mark.parametrize("pieces", [[b"x"], [b"x", b"y"]])
@differs_from_asyncio("writelines does not look at write_eof", since=(3, 12))
async def test_writelines_after_half_close_is_an_error(loop, kind, pieces):
    async with connected(loop, kind, Recorder) as (transport, _, _peer):
        transport.write_eof()
        with pytest.raises(RuntimeError, match=r"write_eof|writelines"):
            transport.writelines(pieces)


async def test_half_close_after_close_does_nothing(loop, kind):
    async with connected(loop, kind, Recorder) as (transport, protocol, _):
        transport.close()
        transport.write_eof()
        assert await protocol.until_lost() is None
        transport.write_eof()


async def test_both_halves_shut_one_after_the_other(loop, kind):
    async with connected(loop, kind, HalfOpenRecorder) as (transport, protocol, peer):
        peer.sock.shutdown(socket.SHUT_WR)
        await protocol.until_called("eof_received")
        transport.write_eof()
        assert await peer.recv_all() == b""
        transport.close()
        assert await protocol.until_lost() is None


async def test_both_halves_shut_and_idle_takes_no_cpu(loop, kind):
    """A hang-up cannot be masked out of a level-triggered set; the loop must not spin on it."""
    async with connected(loop, kind, HalfOpenRecorder) as (transport, protocol, peer):
        peer.sock.shutdown(socket.SHUT_WR)
        await protocol.until_called("eof_received")
        transport.write_eof()
        await quiet()
        assert await is_idle(loop, 0.2)
        assert not transport.is_closing()


async def test_hang_up_while_paused_takes_no_cpu(loop, kind):
    async with connected(loop, kind, Recorder) as (transport, protocol, peer):
        transport.pause_reading()
        await peer.send(b"unread")
        peer.close()
        await quiet()
        assert await is_idle(loop, 0.2)
        transport.resume_reading()
        await protocol.until_lost()


async def test_duplicate_of_the_socket_may_live_on(loop, kind):
    """After the end nothing is reported for the other descriptor, and the loop does not spin."""
    near, far = socket_pair(kind)
    twin = near.dup()
    _, protocol = await attach(loop, near, Recorder)
    far.send(b"x")
    await protocol.until_received(1)
    protocol.transport.abort()
    await protocol.until_lost()
    with contextlib.suppress(OSError):
        far.send(b"y")
    assert await is_idle(loop, 0.1)
    assert protocol.received == b"x"
    twin.close()
    far.close()


async def test_peer_that_resets_while_data_are_queued(loop):
    async with connected(loop, "tcp", Recorder) as (transport, protocol, peer):
        transport.write(b"x" * BIG)
        peer.reset()
        assert isinstance(await protocol.until_lost(), (ConnectionResetError, BrokenPipeError))
        assert transport.is_closing()


async def test_peer_that_closes_while_data_are_queued(loop, kind):
    async with connected(loop, kind, Recorder) as (transport, protocol, peer):
        transport.write(b"x" * BIG)
        await turns()
        peer.close()
        exc = await protocol.until_lost()
        assert exc is None or isinstance(exc, ConnectionError)
        assert protocol.count("connection_lost") == 1


async def test_writing_to_a_peer_that_is_gone(loop, kind):
    """The protocol is told once; the exception handler is not bothered."""
    async with connected(loop, kind, HalfOpenRecorder) as (transport, protocol, peer):
        peer.close()
        await protocol.until_called("eof_received")
        for _ in range(10):
            transport.write(b"x" * 1000)
            await turns(1)
        assert isinstance(await protocol.until_lost(), ConnectionError)
        for _ in range(10):
            transport.write(b"x")
        assert protocol.count("connection_lost") == 1


async def test_error_while_writing_still_delivers_what_arrived(loop):
    """Data that came before the reset are read, not thrown away, if they were in time."""
    async with connected(loop, "tcp", Recorder) as (_, protocol, peer):
        await peer.send(b"goodbye")
        await protocol.until_received(7)
        peer.reset()
        assert isinstance(await protocol.until_lost(), ConnectionResetError)
    assert protocol.received == b"goodbye"


async def test_reset_while_paused(loop):
    async with connected(loop, "tcp", Recorder) as (transport, protocol, peer):
        transport.pause_reading()
        peer.reset()
        await quiet()
        transport.resume_reading()
        assert isinstance(await protocol.until_lost(), ConnectionResetError)


async def test_reset_after_the_own_half_close(loop):
    async with connected(loop, "tcp", Recorder) as (transport, protocol, peer):
        transport.write_eof()
        await turns()
        peer.reset()
        exc = await protocol.until_lost()
        assert exc is None or isinstance(exc, ConnectionError)


class Raises(Recorder):
    """Raises from one method."""

    where = None

    def note(self, name, *args):
        super().note(name, *args)
        if name == self.where:
            raise ZeroDivisionError(name)


def raising(base, where):
    return type("Raising", (Raises, base), {"where": where})


@pytest.mark.parametrize("where", ["data_received", "eof_received"])
async def test_exception_while_reading_ends_the_connection(loop, kind, where, unhandled):
    async with connected(loop, kind, raising(Recorder, where)) as (transport, protocol, peer):
        await peer.send(b"x")
        if where == "eof_received":
            peer.close()
        assert isinstance(await protocol.until_lost(), ZeroDivisionError)
        assert transport.is_closing()
        context = unhandled.take_one()
        assert isinstance(context["exception"], ZeroDivisionError)
        assert context["transport"] is transport
        assert context["protocol"] is protocol
        assert where in context["message"]


class RaisesBuffered(BufferedRecorder):
    where = None

    def note(self, name, *args):
        super().note(name, *args)
        if name == self.where:
            raise ZeroDivisionError(name)

    def get_buffer(self, sizehint):
        if self.where == "get_buffer":
            raise ZeroDivisionError("get_buffer")
        return super().get_buffer(sizehint)


@pytest.mark.parametrize("where", ["get_buffer", "buffer_updated", "eof_received"])
async def test_exception_while_reading_into_a_buffer(loop, kind, where, unhandled):
    factory = type("Raising", (RaisesBuffered,), {"where": where})
    async with connected(loop, kind, factory) as (transport, protocol, peer):
        await peer.send(b"x")
        if where == "eof_received":
            peer.close()
        assert isinstance(await protocol.until_lost(), ZeroDivisionError)
        context = unhandled.take_one()
        assert isinstance(context["exception"], ZeroDivisionError)
        assert context["transport"] is transport


async def test_exception_in_connection_made_is_reported(loop, kind, unhandled):
    near, far = socket_pair(kind)
    transport, _ = await attach(loop, near, raising(Recorder, "connection_made"))
    await turns()
    assert isinstance(unhandled.take_one()["exception"], ZeroDivisionError)
    transport.abort()
    far.close()
    await until(lambda: near.fileno() == -1)


async def test_exception_in_connection_lost_is_reported(loop, kind, unhandled):
    async with connected(loop, kind, raising(Recorder, "connection_lost")) as (transport, _, _p):
        sock = transport.get_extra_info("socket")
        transport.close()
        await until(lambda: len(unhandled))
        assert isinstance(unhandled.take_one()["exception"], ZeroDivisionError)
        await turns()
        assert sock.fileno() == -1


async def test_exception_in_pause_writing_is_reported(loop, kind, unhandled):
    async with connected(loop, kind, raising(Recorder, "pause_writing")) as (transport, _, peer):
        transport.write(b"x" * BIG)
        context = unhandled.take_one()
        assert isinstance(context["exception"], ZeroDivisionError)
        assert context["transport"] is transport
        assert "pause_writing() failed" in context["message"]
        assert len(await peer.recv_exactly(BIG)) == BIG


async def test_exception_in_resume_writing_is_reported(loop, kind, unhandled):
    async with connected(loop, kind, raising(Recorder, "resume_writing")) as (transport, _, peer):
        transport.write(b"x" * BIG)
        assert len(await peer.recv_exactly(BIG)) == BIG
        await until(lambda: len(unhandled))
        context = unhandled.take_one()
        assert "resume_writing() failed" in context["message"]
        transport.write(b"goes on")
        assert await peer.recv_exactly(7) == b"goes on"


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_interrupt_in_data_received_leaves_the_run(loop, kind, error):
    class Interrupts(Recorder):
        def data_received(self, data):
            raise error

    near, far = socket_pair(kind)
    transport, _ = loop.run_until_complete(attach(loop, near, Interrupts))
    far.send(b"x")
    with pytest.raises(error):
        loop.run_forever()
    transport.abort()
    loop.run_until_complete(turns())
    far.close()
    assert near.fileno() == -1


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("where", ["connection_made", "eof_received"])
def test_connection_goes_on_after_an_interrupt(loop, kind, where, error):
    class Interrupted(Recorder):
        def note(self, name, *args):
            super().note(name, *args)
            if name == where and self.count(name) == 1:
                raise error

    near, far = socket_pair(kind)
    far.send(b"hello")
    far.close()
    protocol = Interrupted()
    attaching = loop.create_task(attach(loop, near, lambda: protocol))
    with pytest.raises(error):
        loop.run_forever()
    loop.run_until_complete(attaching)
    loop.run_until_complete(protocol.until_lost())
    assert protocol.received == b"hello"
    loop.run_until_complete(until(lambda: near.fileno() == -1))


@differs_from_asyncio("it never closes")
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_interrupt_in_resume_writing_while_closing(loop, kind, error):
    class Interrupted(Recorder):
        def resume_writing(self):
            raise error

    near, far = socket_pair(kind)
    transport, protocol = loop.run_until_complete(attach(loop, near, Interrupted))
    transport.write(b"x" * BIG)
    transport.close()

    receiving = loop.create_task(Peer(far).recv_exactly(BIG))
    try:
        with pytest.raises(error):
            loop.run_forever()
        loop.run_until_complete(receiving)
        loop.run_until_complete(quiet())
        assert protocol.names[-1] == "connection_lost"
    finally:
        transport.abort()
        loop.run_until_complete(turns())
        far.close()


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_interrupt_in_resume_writing_keeps_the_writes_of_others(loop, kind, error):
    """Also when it comes while the writes of a turn are sent together."""

    class Interrupted(Recorder):
        def resume_writing(self):
            raise error

    near, far = socket_pair(kind)
    other_near, other_far = socket_pair(kind)
    transport, protocol = loop.run_until_complete(attach(loop, near, Interrupted))
    other, other_protocol = loop.run_until_complete(attach(loop, other_near, Recorder))

    def write():
        transport.set_write_buffer_limits(1)
        for data in (b"1", b"23"):
            transport.write(data)
            other.write(data)

    loop.call_soon(write)
    # asyncio sends each write by itself, pauses nobody and is not interrupted.
    with contextlib.suppress(error):
        loop.run_until_complete(quiet())
    loop.run_until_complete(quiet())
    assert other_far.recv(100) == b"123"
    for each in (transport, other):
        each.abort()
    for each in (protocol, other_protocol):
        loop.run_until_complete(each.until_lost())
    far.close()
    other_far.close()


async def test_order_of_the_callbacks(loop, kind):
    near, far = socket_pair(kind)
    far.send(b"x")
    far.close()
    _, protocol = await attach(loop, near, Recorder)
    await protocol.until_lost()
    assert protocol.names == [
        "connection_made", "data_received", "eof_received", "connection_lost"
    ]


async def test_close_in_connection_made(loop, kind):
    class Refuses(Recorder):
        def connection_made(self, transport):
            super().connection_made(transport)
            transport.close()

    near, far = socket_pair(kind)
    _, protocol = await attach(loop, near, Refuses)
    assert await protocol.until_lost() is None
    assert protocol.names == ["connection_made", "connection_lost"]
    assert await Peer(far).recv_all() == b""
    far.close()


async def test_abort_in_connection_made(loop, kind):
    class Refuses(Recorder):
        def connection_made(self, transport):
            super().connection_made(transport)
            transport.abort()

    near, far = socket_pair(kind)
    _, protocol = await attach(loop, near, Refuses)
    assert await protocol.until_lost() is None
    far.close()


async def test_abort_in_pause_writing(loop, kind):
    class Impatient(Recorder):
        def pause_writing(self):
            super().pause_writing()
            self.transport.abort()

    async with connected(loop, kind, Impatient) as (transport, protocol, _):
        transport.write(b"x" * BIG)
        assert await protocol.until_lost() is None
        assert transport.get_write_buffer_size() == 0


@differs_from_asyncio("connection_lost is scheduled twice")
async def test_close_in_resume_writing(loop, kind):
    class Done(Recorder):
        def resume_writing(self):
            super().resume_writing()
            self.transport.close()

    async with connected(loop, kind, Done) as (transport, protocol, peer):
        transport.write(b"x" * BIG)
        assert len(await peer.recv_all()) == BIG
        assert await protocol.until_lost() is None


async def test_socket_is_closed_after_connection_lost(loop, kind):
    near, far = socket_pair(kind)

    class Looks(Recorder):
        def connection_lost(self, exc):
            self.number = near.fileno()
            super().connection_lost(exc)

    transport, protocol = await attach(loop, near, Looks)
    transport.close()
    await protocol.until_lost()
    assert protocol.number != -1        # still open when the protocol is told
    await turns()
    assert near.fileno() == -1
    far.close()


async def test_transport_that_is_dropped_open_warns(loop, kind):
    near, far = socket_pair(kind)
    transport, protocol = await attach(loop, near, Recorder)
    # Nobody closes it; the loop goes away first.
    ref = weakref.ref(transport)
    protocol.transport = None
    loop.call_soon(transport.abort)
    del transport
    await until(lambda: near.fileno() == -1)
    far.close()
    gc.collect()
    assert ref() is None


async def test_closed_connection_is_freed(loop, kind):
    refs = []
    for _ in range(5):
        near, far = socket_pair(kind)
        transport, protocol = await attach(loop, near, Recorder)
        far.send(b"x")
        await protocol.until_received(1)
        transport.close()
        await protocol.until_lost()
        await turns()
        refs += [weakref.ref(transport), weakref.ref(protocol)]
        far.close()
        del transport, protocol, near
    gc.collect()
    assert [ref() for ref in refs] == [None] * len(refs)


async def test_repr_tells_the_state(loop, kind):
    async with connected(loop, kind, Recorder) as (transport, protocol, _):
        assert "Transport" in repr(transport)
        transport.close()
        assert "clos" in repr(transport)
        await protocol.until_lost()
        await turns()
        assert "closed" in repr(transport)


async def test_transport_is_an_asyncio_transport(loop, kind):
    async with connected(loop, kind, Recorder) as (transport, _, _peer):
        assert isinstance(transport, asyncio.Transport)
        assert isinstance(transport, asyncio.ReadTransport)
        assert isinstance(transport, asyncio.WriteTransport)
        assert isinstance(transport, asyncio.BaseTransport)


def test_close_of_the_loop_with_an_open_connection(loop_spec):
    """The socket belongs to the transport; dropping both frees the descriptor, with a warning."""
    for pair in (tcp_pair, unix_pair):
        near, far = pair()
        loop = loop_spec.make()
        transport, _ = loop.run_until_complete(attach(loop, near, asyncio.Protocol))
        loop.close()
        with pytest.warns(ResourceWarning):
            del near, transport, _
            gc.collect()
        far.close()
