"""Pipe transports: reading from pipes, FIFOs, sockets, terminals and devices."""
import asyncio
import contextvars
import fcntl
import gc
import io
import os
import random
import time
import warnings

import pytest
from support.features import needs
from support.loops import differs_from_asyncio, eploop_only, without_debug
from support.pipes import READ_KINDS, Far, read_ends, reading
from support.protocols import BufferedRecorder, Recorder
from support.waiting import is_idle, quiet, turns, until

pytestmark = needs("pipes")
var = contextvars.ContextVar("var", default="unset")


@pytest.fixture(params=READ_KINDS)
def ends(request, tmp_path):
    return read_ends(request.param, tmp_path)


async def test_data_end_of_file_and_the_end(loop, ends):
    async with reading(loop, ends, Recorder) as (transport, protocol, far):
        far.write(b"one")
        await protocol.until_received(3)
        far.write(b"two")
        assert await protocol.until_received(6) == b"onetwo"
        assert transport.is_reading()
        far.close()
        assert await protocol.until_lost() is None
        assert protocol.names == ["connection_made", "data_received", "eof_received",
                                  "connection_lost"]
        assert transport.is_closing()


@pytest.mark.parametrize("ends", ["pipe", "fifo", "socket"], indirect=True)
async def test_everything_was_there_before(loop, ends):
    os.write(ends[1], b"x" * 60000)
    os.close(ends[1])
    spare = os.open("/dev/null", os.O_RDONLY)
    async with reading(loop, (ends[0], spare), Recorder) as (_, protocol, _):
        assert await protocol.until_lost() is None
        assert protocol.received == b"x" * 60000
        assert protocol.count("eof_received") == 1


async def test_a_bare_hang_up(loop, ends):
    async with reading(loop, ends, Recorder) as (_, protocol, far):
        await quiet()
        far.close()
        assert await protocol.until_lost() is None
        assert protocol.names == ["connection_made", "eof_received", "connection_lost"]


@without_debug("long")
async def test_random_writes_then_close(loop, tmp_path):
    rng = random.Random(1)
    for number in range(60):
        kind = ("pipe", "socket")[number % 2]
        async with reading(loop, read_ends(kind, tmp_path), Recorder) as (_, protocol, far):
            sent = b""
            for _ in range(rng.randrange(5)):
                piece = rng.randbytes(rng.choice((1, 100, 4096, 9000)))
                far.write(piece)
                sent += piece
                if rng.random() < 0.5:
                    await turns(rng.randrange(3))
            far.close()
            assert await protocol.until_lost() is None
            assert protocol.received == sent


async def test_the_descriptor_becomes_non_blocking_and_is_closed(loop, ends):
    file, far = io.FileIO(ends[0], "r"), Far(ends[1])
    os.set_blocking(ends[0], True)
    transport, protocol = await loop.connect_read_pipe(Recorder, file)
    assert not os.get_blocking(ends[0])
    assert transport.get_extra_info("pipe") is file
    assert isinstance(transport, asyncio.ReadTransport)
    transport.close()
    assert not file.closed
    await protocol.until_lost()
    await turns()
    assert file.closed
    assert transport.get_extra_info("pipe") is file
    far.close()


async def test_close_drops_what_was_not_read(loop, ends):
    async with reading(loop, ends, Recorder) as (transport, protocol, far):
        far.write(b"x")
        transport.close()
        transport.close()
        assert await protocol.until_lost() is None
        await turns()
        assert protocol.names == ["connection_made", "connection_lost"]


# ---- pausing


async def test_data_waits_while_paused(loop, ends):
    async with reading(loop, ends, Recorder) as (transport, protocol, far):
        transport.pause_reading()
        transport.pause_reading()
        far.write(b"x")
        await quiet()
        assert not protocol.received
        assert not transport.is_reading()
        transport.resume_reading()
        transport.resume_reading()
        assert not protocol.received
        await protocol.until_received(1)
        far.write(b"y")
        assert await protocol.until_received(2) == b"xy"


@pytest.mark.parametrize("ends", ["pipe", "fifo", "socket"], indirect=True)
async def test_data_and_hang_up_wait_while_paused(loop, ends):
    async with reading(loop, ends, Recorder) as (transport, protocol, far):
        transport.pause_reading()
        far.write(b"x" * 5000)
        far.close()
        assert await is_idle(loop, 0.1)
        assert protocol.names == ["connection_made"]
        transport.resume_reading()
        assert await protocol.until_lost() is None
        assert protocol.received == b"x" * 5000
        assert protocol.count("eof_received") == 1


async def test_pausing_in_data_received(loop, tmp_path):
    class Pauses(Recorder):
        def data_received(self, data):
            super().data_received(data)
            self.transport.pause_reading()

    async with reading(loop, os.pipe(), Pauses) as (transport, protocol, far):
        fcntl.fcntl(far.fd, fcntl.F_SETPIPE_SZ, 1 << 19)
        far.write(b"x" * 300_000)
        far.close()
        while protocol.count("connection_lost") == 0:
            seen = len(protocol.calls)
            await quiet()
            assert len(protocol.calls) <= seen + 1 or protocol.count("connection_lost")
            transport.resume_reading()
        assert protocol.received == b"x" * 300_000


@eploop_only("counters")
async def test_pausing_costs_no_system_call_in_edge_mode(loop, loop_spec, ends):
    async with reading(loop, ends, Recorder) as (transport, protocol, far):
        before = loop.statistics().epoll_ctl_calls
        for size in range(1, 20):
            transport.pause_reading()
            far.write(b"x")
            await turns()
            transport.resume_reading()
            await protocol.until_received(size)
        if loop_spec.mode == "edge":
            assert loop.statistics().epoll_ctl_calls == before


# ---- what is special about some


@pytest.mark.parametrize("direct", ["both", "writer"])
async def test_packets(loop, direct):
    near, far = os.pipe2(os.O_DIRECT if direct == "both" else 0)
    fcntl.fcntl(far, fcntl.F_SETFL, os.O_DIRECT)
    async with reading(loop, (near, far), Recorder) as (_, protocol, peer):
        for piece in (b"one", b"two", b"three"):
            peer.write(piece)
        assert await protocol.until_received(11) == b"onetwothree"
        await quiet()
        peer.write(b"four")
        await protocol.until_received(15)


async def test_terminal_lines(loop):
    master, slave = os.openpty()
    async with reading(loop, (slave, master), Recorder) as (_, protocol, far):
        far.write(b"one\ntwo\nthree\n")
        assert await protocol.until_received(14) == b"one\ntwo\nthree\n"
        assert protocol.count("data_received") == 3
        far.write(b"\x04")      # end of file, typed
        assert await protocol.until_lost() is None
        assert protocol.count("eof_received") == 1


@differs_from_asyncio("connection_lost() gets OSError(EIO), and no eof_received() comes before it")
async def test_master_of_a_terminal_whose_slave_was_closed(loop):
    master, slave = os.openpty()
    os.write(slave, b"last words")
    async with reading(loop, (master, slave), Recorder) as (_, protocol, far):
        await protocol.until_received(10)
        far.close()
        assert await protocol.until_lost() is None
        assert protocol.count("eof_received") == 1


@differs_from_asyncio("epoll's PermissionError is reported, and nothing is read")
async def test_null_device_is_at_its_end(loop):
    ends = os.open("/dev/null", os.O_RDONLY), os.open("/dev/null", os.O_RDONLY)
    async with reading(loop, ends, Recorder) as (_, protocol, _):
        assert await protocol.until_lost() is None
        assert protocol.names == ["connection_made", "eof_received", "connection_lost"]


@differs_from_asyncio("epoll's PermissionError is reported, and nothing is read")
async def test_endless_device_leaves_time_for_others(loop):
    ends = os.open("/dev/zero", os.O_RDONLY), os.open("/dev/null", os.O_RDONLY)
    async with reading(loop, ends, Recorder) as (transport, protocol, _):
        await protocol.until_received(1_000_000)
        transport.pause_reading()
        size = len(protocol.received)
        await turns()
        assert len(protocol.received) == size
        transport.resume_reading()
        await protocol.until_received(size + 1)


async def test_fifo_gets_another_writer(loop, tmp_path):
    """A hang-up that was seen while paused is over when the next writer comes."""
    near, far = read_ends("fifo", tmp_path)
    async with reading(loop, (near, far), Recorder) as (transport, protocol, peer):
        transport.pause_reading()
        await quiet()
        peer.close()
        await quiet()
        peer.fd = os.open(tmp_path / "fifo", os.O_WRONLY)
        transport.resume_reading()
        peer.write(b"second")
        await protocol.until_received(6)
        assert protocol.count("eof_received") == 0
        peer.close()
        await protocol.until_lost()


# ---- the protocol


async def test_eof_received_cannot_keep_it_open(loop, ends):
    class Stays(Recorder):
        def eof_received(self):
            super().eof_received()
            return True

    async with reading(loop, ends, Stays) as (_, protocol, far):
        far.close()
        assert await protocol.until_lost() is None


@pytest.mark.parametrize("method", ["data_received", "eof_received"])
async def test_an_error_in_a_callback_is_reported_and_nothing_more(loop, ends, method, unhandled):
    def fail(*args):
        raise RuntimeError("mine")

    async with reading(loop, ends, Recorder) as (_, protocol, far):
        setattr(protocol, method, fail)
        far.write(b"x")
        await quiet()
        if method == "data_received":
            del protocol.data_received
            far.write(b"y")
            await protocol.until_received(1)
        far.close()
        assert await protocol.until_lost() is None
    assert str(unhandled.take_one()["exception"]) == "mine"


async def test_connection_made_comes_first(loop, ends):
    os.write(ends[1], b"early")
    async with reading(loop, ends, Recorder) as (_, protocol, _):
        await protocol.until_received(5)
        assert protocol.names == ["connection_made", "data_received"]


async def test_resume_reading_does_not_call_back(loop, ends):
    class Resumes(Recorder):
        inside = False

        def data_received(self, data):
            assert not self.inside
            self.inside = True
            super().data_received(data)
            self.transport.pause_reading()
            self.transport.resume_reading()
            self.inside = False

    async with reading(loop, ends, Resumes) as (_, protocol, far):
        for size in range(1, 10):
            far.write(b"x")
            await protocol.until_received(size)


async def test_another_protocol_takes_over(loop, ends):
    async with reading(loop, ends, Recorder) as (transport, protocol, far):
        second = Recorder()
        transport.set_protocol(second)
        assert transport.get_protocol() is second
        far.write(b"x")
        await second.until_received(1)
        transport.close()
        await second.until_lost()
        assert protocol.names == ["connection_made"]


@eploop_only("asyncio calls data_received() on every protocol")
async def test_buffered_protocol(loop, ends):
    async with reading(loop, ends, lambda: BufferedRecorder(3)) as (_, protocol, far):
        far.write(b"0123456789")
        assert await protocol.until_received(10) == b"0123456789"
        far.close()
        assert await protocol.until_lost() is None


@differs_from_asyncio("callbacks run in the context of whoever resumed or closed last")
async def test_one_context(loop, ends):
    class Seeing(Recorder):
        def note(self, name, *args):
            super().note(name, *args)
            seen[name] = var.get()
            if name == "connection_made":
                var.set("connection")

    seen = {}
    var.set("creator")
    async with reading(loop, ends, Seeing) as (transport, protocol, far):
        var.set("later")
        transport.pause_reading()
        far.write(b"x")
        transport.resume_reading()
        await protocol.until_received(1)
        far.close()
        await protocol.until_lost()
    assert seen == {"connection_made": "creator", "data_received": "connection",
                    "eof_received": "connection", "connection_lost": "connection"}


async def test_stream_reader(loop, ends):
    reader = asyncio.StreamReader(limit=1000)
    async with reading(loop, ends, lambda: asyncio.StreamReaderProtocol(reader)) as (_, _, far):
        far.write(b"line\n" + b"x" * 3000)
        assert await reader.readline() == b"line\n"
        assert await reader.readexactly(3000) == b"x" * 3000
        far.close()
        assert await reader.read() == b""


# ---- what is refused, and what goes wrong


@pytest.mark.parametrize("method", ["connect_read_pipe", "connect_write_pipe"])
async def test_regular_files_are_refused(loop, tmp_path, method):
    path = tmp_path / "file"
    path.write_bytes(b"content")
    with io.FileIO(path, "r+") as file, warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match=r"[Pp]ipe"):
            await getattr(loop, method)(Recorder, file)
        gc.collect()
        await turns()
        assert file.read() == b"content"
        assert os.get_blocking(file.fileno())


async def test_cancelled_while_connecting(loop, ends):
    file = io.FileIO(ends[0], "r")
    task = loop.create_task(loop.connect_read_pipe(Recorder, file))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: file.closed)
    os.close(ends[1])


@pytest.mark.unguarded("the transport is left open on purpose")
def test_unclosed_transport_warns(loop, ends):
    async def connect():
        file = io.FileIO(ends[0], "r")
        transport, _ = await loop.connect_read_pipe(asyncio.Protocol, file)
        assert "fd=" in repr(transport)
        return file

    file = loop.run_until_complete(connect())
    with pytest.warns(ResourceWarning, match="unclosed transport"):
        loop.close()
        gc.collect()
    assert file.closed
    os.close(ends[1])


@eploop_only("counters")
async def test_open_transports_are_counted(loop, ends):
    before = loop.statistics().open_transports
    async with reading(loop, ends, Recorder):
        assert loop.statistics().open_transports == before + 1
    assert loop.statistics().open_transports == before


async def test_whoever_awaits_the_pipe_goes_before_its_data(loop, ends):
    def slowly():
        time.sleep(0.002)       # the loop asks the kernel again before it calls connection_made
        return Recorder()

    os.write(ends[1], b"early")
    async with reading(loop, ends, slowly) as (_, protocol, _far):
        assert protocol.names == ["connection_made"]
        assert await protocol.until_received(5) == b"early"
