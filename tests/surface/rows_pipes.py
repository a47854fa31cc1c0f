"""Read and write pipes."""
import asyncio
import contextlib
import io
import os

from support.pipes import Far, read_ends, write_ends
from support.protocols import BufferedRecorder, Recorder
from support.waiting import quiet, turns

from surface.checks import equal, kind_of, raises
from surface.ends import fill
from surface.rows import subject

row = subject("Pipes")


@contextlib.asynccontextmanager
async def reading(loop, folder, kind="pipe", factory=Recorder):
    """A transport that reads, its protocol, and the far end."""
    near, far = read_ends(kind, folder)
    file = io.FileIO(near, "r")
    transport, protocol = await loop.connect_read_pipe(factory, file)
    async with ended(transport.close, protocol, file, Far(far)) as far:
        yield transport, protocol, far


@contextlib.asynccontextmanager
async def writing(loop, folder, kind="pipe", factory=Recorder):
    """The same with a transport that writes."""
    near, far = write_ends(kind, folder)
    file = io.FileIO(near, "w")
    transport, protocol = await loop.connect_write_pipe(factory, file)
    async with ended(transport.abort, protocol, file, Far(far)) as far:
        yield transport, protocol, far


@contextlib.asynccontextmanager
async def ended(end, protocol, file, far):
    """End the transport in the end, if it has not ended by itself."""
    try:
        yield far
    finally:
        if not protocol.count("connection_lost"):
            end()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(protocol.until_lost(), 1)
        await turns(4)
        far.close()
        file.close()


@row("are asyncio.ReadTransport and WriteTransport")
async def classes(loop, folder):
    async with reading(loop, folder) as (reader, _, _), writing(loop, folder) as (writer, _, _):
        kind_of(reader, asyncio.ReadTransport)
        kind_of(writer, asyncio.WriteTransport)


@row("connect_read_pipe(protocol_factory=, pipe=): data, end, connection_lost()")
async def read_pipe(loop, folder):
    for kind in ("pipe", "fifo", "socket"):
        async with reading(loop, folder, kind) as (_, protocol, far):
            far.write(b"hello")
            equal(await protocol.until_received(5), b"hello")
            far.close()
            equal(await protocol.until_lost(), None)
            equal(protocol.names,
                  ["connection_made", "data_received", "eof_received", "connection_lost"])


@row("connect_read_pipe() of a terminal")
async def read_terminal(loop, folder):
    async with reading(loop, folder, "tty") as (_, protocol, far):
        far.write(b"one\n")
        far.write(b"two\n")
        equal(await protocol.until_received(8), b"one\ntwo\n")


@row("read pipe: pause_reading(), resume_reading(), is_reading()")
async def pause(loop, folder):
    async with reading(loop, folder) as (transport, protocol, far):
        equal(transport.is_reading(), True)
        transport.pause_reading()
        equal(transport.is_reading(), False)
        far.write(b"x")
        await quiet()
        equal(bytes(protocol.received), b"")
        transport.resume_reading()
        equal(transport.is_reading(), True)
        equal(await protocol.until_received(1), b"x")


@row("read pipe: close(), is_closing(), get_extra_info(name=pipe, default=)")
async def close_reading(loop, folder):
    async with reading(loop, folder) as (transport, protocol, _):
        kind_of(transport.get_extra_info("pipe"), io.FileIO)
        equal(transport.get_extra_info("no such thing", 3), 3)
        equal(transport.is_closing(), False)
        transport.close()
        equal(transport.is_closing(), True)
        equal(await protocol.until_lost(), None)
        await turns(4)
        equal(transport.get_extra_info("pipe").closed, True)


@row("read pipe: set_protocol(protocol=), get_protocol()")
async def set_reader(loop, folder):
    async with reading(loop, folder) as (transport, first, far):
        assert transport.get_protocol() is first, "another protocol"
        second = Recorder()
        transport.set_protocol(second)
        assert transport.get_protocol() is second, "not the new protocol"
        far.write(b"x")
        equal(await second.until_received(1), b"x")
        transport.set_protocol(first)


@row("read pipe: BufferedProtocol")
async def buffered(loop, folder):
    async with reading(loop, folder, factory=BufferedRecorder) as (_, protocol, far):
        far.write(b"hello")
        equal(await protocol.until_received(5), b"hello")


@row("connect_write_pipe(protocol_factory=, pipe=)")
async def write_pipe(loop, folder):
    for kind in ("pipe", "fifo", "socket", "tty"):
        async with writing(loop, folder, kind) as (transport, protocol, far):
            transport.write(b"hello")
            equal(await far.read(5), b"hello")
            equal(protocol.names, ["connection_made"])


@row("write pipe: write(data=): bytes, bytearray, memoryview")
async def write(loop, folder):
    async with writing(loop, folder) as (transport, _, far):
        for data in (b"one", bytearray(b"two"), b"", memoryview(b"three")):
            transport.write(data)
        equal(await far.read(11), b"onetwothree")


@row("write pipe: writelines(list_of_data=)")
async def writelines(loop, folder):
    async with writing(loop, folder) as (transport, _, far):
        transport.writelines([b"one", bytearray(b"two")])
        equal(await far.read(6), b"onetwo")


@row("write pipe: can_write_eof(), write_eof()")
async def write_eof(loop, folder):
    async with writing(loop, folder) as (transport, protocol, far):
        equal(transport.can_write_eof(), True)
        transport.write(b"last")
        transport.write_eof()
        equal(await protocol.until_lost(), None)
        equal(far.read_now(), b"last")


@row("write pipe: close() sends what is queued, is_closing()")
async def close_writing(loop, folder):
    async with writing(loop, folder) as (transport, protocol, far):
        data = fill(transport)
        equal(transport.is_closing(), False)
        transport.close()
        equal(transport.is_closing(), True)
        assert await far.read(len(data)) == data, "other bytes"
        equal(await protocol.until_lost(), None)


@row("write pipe: abort() drops what is queued")
async def abort(loop, folder):
    async with writing(loop, folder) as (transport, protocol, far):
        data = fill(transport)
        transport.abort()
        equal(await protocol.until_lost(), None)
        assert len(far.read_now()) < len(data), "all was sent"


@row("write pipe: get_write_buffer_limits(), set_write_buffer_limits(high=, low=)")
async def limits(loop, folder):
    async with writing(loop, folder) as (transport, _, _):
        equal(transport.get_write_buffer_limits(), (16 * 1024, 64 * 1024))
        transport.set_write_buffer_limits(high=400, low=100)
        equal(transport.get_write_buffer_limits(), (100, 400))


@row("write pipe: get_write_buffer_size(), pause_writing(), resume_writing()")
async def flow_control(loop, folder):
    async with writing(loop, folder) as (transport, protocol, far):
        equal(transport.get_write_buffer_size(), 0)
        data = fill(transport)
        equal(protocol.count("pause_writing"), 1)
        assert await far.read(len(data)) == data, "other bytes"
        await protocol.until_called("resume_writing")
        await turns(4)
        equal(transport.get_write_buffer_size(), 0)


@row("write pipe: a bytearray changed after write() was sent as it was")
async def snapshot(loop, folder):
    async with writing(loop, folder) as (transport, _, far):
        sent = fill(transport)
        data = bytearray(b"before")
        transport.write(data)
        data[:] = b"later."
        assert await far.read(len(sent) + 6) == sent + b"before", "what was there later"


@row("write pipe: what is not bytes-like is a TypeError")
async def wrong_type(loop, folder):
    async with writing(loop, folder) as (transport, _, _):
        for data in ("text", None, 3):
            with raises(TypeError):
                transport.write(data)


@row("write pipe: set_protocol(protocol=), get_protocol(), get_extra_info(name=pipe, default=)")
async def set_writer(loop, folder):
    async with writing(loop, folder) as (transport, first, _):
        assert transport.get_protocol() is first, "another protocol"
        second = Recorder()
        second.transport = transport
        transport.set_protocol(second)
        assert transport.get_protocol() is second, "not the new protocol"
        fill(transport)
        equal((first.count("pause_writing"), second.count("pause_writing")), (0, 1))
        kind_of(transport.get_extra_info("pipe"), io.FileIO)
        equal(transport.get_extra_info("no such thing", 3), 3)
        transport.set_protocol(first)


@row("write pipe: the reader leaves, idle or not")
async def reader_leaves(loop, folder):
    async with writing(loop, folder) as (_, protocol, far):
        far.close()
        await protocol.until_lost()
    async with writing(loop, folder) as (transport, protocol, far):
        fill(transport)
        far.close()
        kind_of(await protocol.until_lost(), BrokenPipeError)


@row("a regular file is refused with ValueError")
async def regular_file(loop, folder):
    for method, mode in ((loop.connect_read_pipe, "rb"), (loop.connect_write_pipe, "wb")):
        (folder / "file").touch()
        with (folder / "file").open(mode, buffering=0) as file, raises(ValueError):
            await method(Recorder, file)


@row("the descriptor is made non-blocking, and closed at the end")
async def descriptor(loop, folder):
    async with reading(loop, folder) as (transport, protocol, _):
        file = transport.get_extra_info("pipe")
        equal(os.get_blocking(file.fileno()), False)
        transport.close()
        await protocol.until_lost()
        await turns(4)
        equal(file.closed, True)
