"""Pipe transports: writing to pipes, FIFOs, sockets, terminals and devices."""
import asyncio
import contextvars
import gc
import io
import os
import socket

import pytest
from support.features import needs
from support.loops import differs_from_asyncio, eploop_only, without_debug
from support.pipes import WRITE_KINDS, Far, read_ends, reading, write_ends, writing
from support.protocols import Recorder
from support.waiting import is_idle, quiet, turns, until

pytestmark = needs("pipes")
var = contextvars.ContextVar("var", default="unset")
BIG = 1 << 20


@pytest.fixture(params=WRITE_KINDS)
def ends(request, tmp_path):
    return write_ends(request.param, tmp_path)


without_tty = pytest.mark.parametrize("ends", ["pipe", "fifo", "socket"], indirect=True)


async def test_bytes_arrive_at_once(loop, ends):
    async with writing(loop, ends, Recorder) as (transport, protocol, far):
        transport.write(b"now")
        assert far.read_now() == b"now"
        transport.write(bytearray(b"later"))
        transport.writelines([memoryview(b" and"), b"", b" more"])
        transport.write(b"")
        assert await far.read(14) == b"later and more"
        assert transport.get_write_buffer_size() == 0
        assert protocol.names == ["connection_made"]
        assert isinstance(transport, asyncio.WriteTransport)
        assert transport.can_write_eof()


def test_writing_while_the_loop_stands_still(loop, ends):
    """No turn ends then, so nothing may wait for the end of one."""
    file, far = io.FileIO(ends[0], "w"), Far(ends[1])
    transport, protocol = loop.run_until_complete(loop.connect_write_pipe(Recorder, file))
    for piece in (b"one", b"two", b"three"):
        transport.write(piece)
        assert far.read_now() == piece
    transport.writelines([b"four", b"five"])
    assert far.read_now() == b"fourfive"
    transport.close()
    loop.run_until_complete(protocol.until_lost())
    loop.run_until_complete(turns())
    far.close()


async def test_order_and_flow_control(loop, ends):
    async with writing(loop, ends, Recorder) as (transport, protocol, far):
        data = os.urandom(BIG)
        for start in range(0, BIG, 1 << 16):
            transport.write(data[start:start + (1 << 16)])
        assert protocol.names == ["connection_made", "pause_writing"]
        assert protocol.calls[-1][1] > 65536
        assert transport.get_write_buffer_limits() == (16384, 65536)
        assert await far.read(BIG) == data
        await protocol.until_called("resume_writing")
        assert protocol.names == ["connection_made", "pause_writing", "resume_writing"]
        assert protocol.calls[-1][1] <= 16384
        transport.write(b"more")
        assert await far.read(4) == b"more"


async def test_many_small_writes_keep_their_order(loop, ends):
    async with writing(loop, ends, Recorder) as (transport, _, far):
        expected = b"".join(b"%d," % i for i in range(20000))
        for i in range(20000):
            transport.write(b"%d," % i)
            if i % 3000 == 0:
                await turns(1)
        assert await far.read(len(expected)) == expected


async def test_later_changes_of_a_buffer_do_not_matter(loop, ends):
    async with writing(loop, ends, Recorder) as (transport, _, far):
        data = bytearray(b"a" * BIG)
        transport.write(data)
        transport.write(data)
        data[:] = b"b" * BIG
        del data[10:]
        assert set(await far.read(2 * BIG)) == set(b"a")


@pytest.mark.parametrize("bad", ["text", None, 1, [b"x"]])
@differs_from_asyncio("an assertion fails, or an attribute is missing")
async def test_what_is_not_bytes_like_is_refused(loop, ends, bad):
    async with writing(loop, ends, Recorder) as (transport, _, far):
        with pytest.raises(TypeError):
            transport.write(bad)
        transport.write(b"ok")
        assert await far.read(2) == b"ok"


# ---- ends


@pytest.mark.parametrize("method", ["close", "write_eof"])
async def test_closing_writes_everything_first(loop, ends, method):
    async with writing(loop, ends, Recorder) as (transport, protocol, far):
        transport.write(b"x")
        transport.write(b"y" * BIG)
        getattr(transport, method)()
        getattr(transport, method)()
        assert transport.is_closing()
        transport.write(b"ignored")
        await turns()
        assert protocol.count("connection_lost") == 0
        assert await far.read(BIG + 1) == b"x" + b"y" * BIG
        assert await protocol.until_lost() is None
        await turns()
        assert protocol.count("connection_lost") == 1


async def test_closing_an_idle_one(loop, ends):
    async with writing(loop, ends, Recorder) as (transport, protocol, _):
        transport.close()
        assert protocol.names == ["connection_made"]
        assert await protocol.until_lost() is None


async def test_abort_drops_what_is_unsent(loop, ends):
    async with writing(loop, ends, Recorder) as (transport, protocol, far):
        transport.write(b"x" * BIG)
        transport.abort()
        assert transport.get_write_buffer_size() == 0
        assert await protocol.until_lost() is None
        assert len(far.read_now()) < BIG


@without_tty
async def test_reader_goes_away_while_idle(loop, ends):
    async with writing(loop, ends, Recorder) as (transport, protocol, far):
        far.close()
        assert await protocol.until_lost() is None
        assert transport.is_closing()


@without_tty
async def test_reader_goes_away_with_bytes_unsent(loop, ends):
    async with writing(loop, ends, Recorder) as (transport, protocol, far):
        transport.write(b"x" * BIG)
        await turns()
        far.close()
        assert isinstance(await protocol.until_lost(), (BrokenPipeError, ConnectionResetError))
        assert transport.get_write_buffer_size() == 0


@without_tty
async def test_writing_when_the_reader_is_gone(loop, ends):
    async with writing(loop, ends, Recorder) as (transport, protocol, far):
        far.close()
        transport.write(b"x")
        assert isinstance(await protocol.until_lost(), BrokenPipeError)
        transport.write(b"y")


async def test_terminal_hung_up(loop, tmp_path):
    async with writing(loop, write_ends("tty", tmp_path), Recorder) as (transport, protocol, far):
        far.close()
        await quiet()
        assert protocol.names == ["connection_made"]
        transport.write(b"x")
        assert isinstance(await protocol.until_lost(), OSError)


async def test_terminal_hung_up_with_bytes_unsent(loop, tmp_path):
    async with writing(loop, write_ends("tty", tmp_path), Recorder) as (transport, protocol, far):
        transport.write(b"x" * BIG)
        await turns()
        far.close()
        assert isinstance(await protocol.until_lost(), OSError)


async def test_writes_after_the_end_are_logged_at_last(loop, ends, caplog):
    async with writing(loop, ends, Recorder) as (transport, protocol, _):
        transport.close()
        for _ in range(7):
            transport.write(b"x")
        assert "pipe closed by peer" in caplog.text
        await protocol.until_lost()


async def test_idle_writer_whose_reader_is_slow_costs_nothing(loop, ends):
    async with writing(loop, ends, Recorder) as (transport, _, far):
        transport.write(b"x" * BIG)
        await turns()
        assert await is_idle(loop, 0.1)
        await far.read(BIG)
        await turns()
        assert await is_idle(loop, 0.1)


# ---- what is special about some


async def test_packets_are_not_joined(loop):
    near, far = os.pipe2(os.O_DIRECT)
    async with writing(loop, (far, near), Recorder) as (transport, _, peer):
        for piece in (b"one", b"two", b"three"):
            transport.write(piece)
        await turns()
        assert [os.read(peer.fd, 100) for _ in range(3)] == [b"one", b"two", b"three"]


@differs_from_asyncio("what could not be sent at once is joined")
async def test_packets_that_had_to_wait_are_not_joined(loop):
    near, far = (sock.detach() for sock in socket.socketpair(type=socket.SOCK_SEQPACKET))
    async with writing(loop, (near, far), Recorder) as (transport, _, peer):
        for number in range(1000):
            transport.write(b"%d" % number)
        assert transport.get_write_buffer_size()
        found = []

        def next_one():
            try:
                found.append(os.read(peer.fd, 100))
            except BlockingIOError:
                return False
            return len(found) == 1000

        await until(lambda: any(next_one() for _ in range(100)))
        assert found == [b"%d" % number for number in range(1000)]


@without_debug("long")
async def test_lines_of_two_writers_are_not_torn(loop, tmp_path):
    """pipe(7): up to PIPE_BUF bytes are written as a whole, and stay so."""
    near, far = os.pipe()
    other = os.dup(far)
    received = []
    async with (writing(loop, (far, near), Recorder) as (first, _, peer),
                writing(loop, (other, os.dup(near)), Recorder) as (second, _, _)):
        for turn in range(50):
            for number in range(12):
                size = 100 + (turn * 37 + number * 211) % 3000
                first.write(b"a" * size + b"\n")
                second.write(b"b" * size + b"\n")
            await turns(1)
            if turn % 4 == 0:       # full at times
                received.append(peer.read_now())
        await until(lambda: received.append(peer.read_now()) or not (
            first.get_write_buffer_size() + second.get_write_buffer_size()))
        received.append(peer.read_now())
    lines = b"".join(received).splitlines()
    assert len(lines) == 1200
    if loop.__module__.startswith("eploop"):
        assert all(len(set(line)) == 1 for line in lines)


async def test_null_device(loop):
    ends = os.open("/dev/null", os.O_WRONLY), os.open("/dev/null", os.O_RDONLY)
    async with writing(loop, ends, Recorder) as (transport, protocol, _):
        for _ in range(3):
            transport.write(b"x" * BIG)
        transport.close()
        assert await protocol.until_lost() is None
        assert protocol.names == ["connection_made", "connection_lost"]


@differs_from_asyncio("the transport takes its own bytes for the end of its reader")
async def test_fifo_opened_for_both(loop, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    near = os.open(tmp_path / "fifo", os.O_RDWR)
    far = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    async with writing(loop, (near, far), Recorder) as (transport, protocol, peer):
        transport.write(b"x")
        await quiet()
        assert await peer.read(1) == b"x"
        assert protocol.names == ["connection_made"]


@differs_from_asyncio("the transport takes any byte from the peer for its end")
async def test_socket_whose_peer_sends(loop, tmp_path):
    async with writing(loop, write_ends("socket", tmp_path), Recorder) as (
            transport, protocol, far):
        far.write(b"x")
        await quiet()
        transport.write(b"y")
        assert await far.read(1) == b"y"
        assert protocol.names == ["connection_made"]


# ---- one descriptor, several transports


async def test_terminal_read_and_written_by_one_number(loop, tmp_path):
    slave, master = read_ends("tty", tmp_path)
    file = io.FileIO(slave, "r+")
    far = Far(master)
    reader_transport, reader = await loop.connect_read_pipe(Recorder, file)
    writer_transport, writer = await loop.connect_write_pipe(Recorder, file)
    writer_transport.write(b"x" * 100_000)
    far.write(b"typed")
    await reader.until_received(5)
    assert await far.read(100_000) == b"x" * 100_000
    reader_transport.pause_reading()
    writer_transport.write(b"y")
    assert await far.read(1) == b"y"
    reader_transport.resume_reading()
    far.write(b"more")
    assert await reader.until_received(9) == b"typedmore"
    writer_transport.close()
    reader_transport.close()
    await writer.until_lost()
    await reader.until_lost()
    await turns()
    assert file.closed
    far.close()


async def test_terminal_read_and_written_by_two_numbers(loop, tmp_path):
    slave, master = read_ends("tty", tmp_path)
    async with (reading(loop, (slave, master), Recorder) as (_, reader, far),
                writing(loop, (os.dup(slave), os.dup(master)), Recorder) as (transport, _, _)):
        far.write(b"typed")
        transport.write(b"shown")
        await reader.until_received(5)
        assert await far.read(5) == b"shown"


@eploop_only("asyncio's second transport takes the place of the first")
async def test_connected_twice(loop, ends):
    """As standard output, when two parts of a program want it."""
    file = io.FileIO(ends[0], "w")
    again = io.FileIO(ends[0], "w", closefd=False)
    far = Far(ends[1])
    first, first_protocol = await loop.connect_write_pipe(Recorder, file)
    second, second_protocol = await loop.connect_write_pipe(Recorder, again)
    first.write(b"x" * BIG)
    assert len(await far.read(BIG)) == BIG
    second.write(b"y" * BIG)
    assert await far.read(BIG) == b"y" * BIG
    second.close()
    await second_protocol.until_lost()
    first.write(b"z")
    assert await far.read(1) == b"z"
    first.close()
    await first_protocol.until_lost()
    await turns()
    far.close()


async def test_add_reader_beside_a_terminal_writer(loop, tmp_path):
    slave, master = read_ends("tty", tmp_path)
    got = []
    async with writing(loop, (slave, master), Recorder) as (transport, _, far):
        loop.add_reader(slave, lambda: got.append(os.read(slave, 100)))
        transport.write(b"x" * 100_000)
        far.write(b"typed")
        assert await far.read(100_000) == b"x" * 100_000
        await until(lambda: got == [b"typed"])
        assert loop.remove_reader(slave)


# ---- the protocol


@differs_from_asyncio("callbacks run in the context of whoever wrote or closed last")
async def test_one_context(loop, ends):
    class Seeing(Recorder):
        def note(self, name, *args):
            super().note(name, *args)
            seen[name] = var.get()
            if name == "connection_made":
                var.set("connection")

    seen = {}
    var.set("creator")
    async with writing(loop, ends, Seeing) as (transport, protocol, far):
        var.set("later")
        transport.write(b"x" * BIG)
        await far.read(BIG)
        await protocol.until_called("resume_writing")
        transport.close()
        await protocol.until_lost()
    assert seen == {"connection_made": "creator", "pause_writing": "connection",
                    "resume_writing": "connection", "connection_lost": "connection"}


async def test_writing_too_much_in_connection_made(loop, ends):
    class Floods(Recorder):
        def connection_made(self, transport):
            super().connection_made(transport)
            transport.write(b"x" * BIG)

    async with writing(loop, ends, Floods) as (_, protocol, far):
        assert protocol.names == ["connection_made", "pause_writing"]
        assert len(await far.read(BIG)) == BIG
        await protocol.until_called("resume_writing")


async def test_stream_writer(loop, ends):
    def factory():
        return asyncio.streams.FlowControlMixin(loop=loop)

    async with writing(loop, ends, factory) as (transport, protocol, far):
        writer = asyncio.StreamWriter(transport, protocol, None, loop)
        writer.write(b"x" * BIG)
        drained = loop.create_task(writer.drain())
        await turns()
        assert not drained.done()
        await far.read(BIG)
        await drained


@without_tty
@pytest.mark.unguarded("the transport is left open on purpose")
def test_unclosed_transport_warns(loop, ends):
    async def connect():
        file = io.FileIO(ends[0], "w")
        transport, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, file)
        assert "fd=" in repr(transport)
        return file

    file = loop.run_until_complete(connect())
    with pytest.warns(ResourceWarning, match="unclosed transport"):
        loop.close()
        gc.collect()
    assert file.closed
    os.close(ends[1])


@eploop_only("counters")
async def test_writing_costs_no_epoll_ctl_until_the_pipe_is_full(loop, ends):
    async with writing(loop, ends, Recorder) as (transport, _, far):
        before = loop.statistics().epoll_ctl_calls
        for _ in range(20):
            transport.write(b"x" * 100)
            transport.write(b"y" * 100)
            await far.read(200)
        assert loop.statistics().epoll_ctl_calls == before


@pytest.mark.parametrize("method", ["pause_reading", "resume_reading", "is_reading"])
async def test_cannot_be_read_from(loop, ends, method):
    async with writing(loop, ends, Recorder) as (transport, _, _):
        with pytest.raises(NotImplementedError):
            getattr(transport, method)()


@differs_from_asyncio("it believes that something is unsent still")
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_interrupt_in_resume_writing_while_closing(loop, ends, error):
    class Interrupted(Recorder):
        def resume_writing(self):
            raise error

    file, far = io.FileIO(ends[0], "w"), Far(ends[1])
    transport, protocol = loop.run_until_complete(loop.connect_write_pipe(Interrupted, file))
    transport.write(b"x" * BIG)
    transport.close()

    receiving = loop.create_task(far.read(BIG))
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
