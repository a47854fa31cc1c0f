"""asyncio's StreamReader and StreamWriter over the loop's transports."""
import asyncio
import contextlib

from support.net import BIG, LOOPBACK
from support.tls import client_context, server_context
from support.waiting import soon, turns

from surface.checks import equal, kind_of, refused
from surface.ends import STREAMS, port_of
from surface.rows import subject

row = subject("StreamReader and StreamWriter")


@contextlib.asynccontextmanager
async def opened(end, folder, serve, limit=2**16):
    """A client's reader and writer; `serve(reader, writer)` runs for the server's end."""
    path = str(folder / "socket")
    options = {"ssl": server_context()} if end == "TLS" else {}
    if end == "Unix":
        server = await asyncio.start_unix_server(serve, path)
        reader, writer = await soon(asyncio.open_unix_connection(path, limit=limit))
    else:
        server = await asyncio.start_server(serve, LOOPBACK, 0, **options)
        if end == "TLS":
            options = {"ssl": client_context(), "server_hostname": "localhost"}
        reader, writer = await soon(asyncio.open_connection(
            LOOPBACK, port_of(server), limit=limit, **options))
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            await asyncio.wait_for(writer.wait_closed(), 1)
        server.close()
        await turns(6)


async def echo(reader, writer):
    """Answer every line, until the end."""
    with contextlib.suppress(ConnectionError):
        while line := await reader.readline():
            writer.write(line)
            await writer.drain()
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


@row("lines there and back, readline(), drain()", ends=STREAMS)
async def lines(loop, folder, end):
    async with opened(end, folder, echo) as (reader, writer):
        kind_of(reader, asyncio.StreamReader)
        kind_of(writer, asyncio.StreamWriter)
        for number in range(10):
            writer.write(b"line %d\n" % number)
            await writer.drain()
            equal(await soon(reader.readline()), b"line %d\n" % number)


@row("readexactly(), readuntil(), read()", ends=STREAMS)
async def reading(loop, folder, end):
    async with opened(end, folder, echo) as (reader, writer):
        writer.write(b"12345;67890\n")
        equal(await soon(reader.readexactly(5)), b"12345")
        equal(await soon(reader.readuntil(b";")), b";")
        equal(await soon(reader.read(100)), b"67890\n")


@row("write_eof() and reading to the end", ends=("TCP", "Unix"))
async def write_eof(loop, folder, end):
    async def answer(reader, writer):
        data = await reader.read()
        writer.write(data[::-1])
        writer.close()
        await writer.wait_closed()

    async with opened(end, folder, answer) as (reader, writer):
        writer.write(b"abc")
        writer.write_eof()
        equal(await soon(reader.read()), b"cba")


@row("drain() waits for a slow reader, 1 MiB through a small limit", ends=STREAMS)
async def backpressure(loop, folder, end):
    done = []

    async def send(reader, writer):
        writer.transport.set_write_buffer_limits(high=4096)
        for _ in range(BIG >> 14):
            writer.write(b"x" * (1 << 14))
            await writer.drain()
        done.append(True)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    async with opened(end, folder, send, limit=4096) as (reader, _):
        received = 0
        while some := await soon(reader.read(1 << 16)):
            received += len(some)
            await asyncio.sleep(0)
        equal((received, done), (BIG, [True]))


@row("writelines(), is_closing(), close(), wait_closed()", ends=STREAMS)
async def closing(loop, folder, end):
    async with opened(end, folder, echo) as (reader, writer):
        writer.writelines([b"one\n", b"two\n"])
        equal(await soon(reader.readexactly(8)), b"one\ntwo\n")
        equal(writer.is_closing(), False)
        writer.close()
        equal(writer.is_closing(), True)
        await soon(writer.wait_closed())


@row("the end in the middle is an IncompleteReadError", ends=("TCP", "Unix"))
async def incomplete(loop, folder, end):
    async def half(reader, writer):
        writer.write(b"half")
        writer.close()
        await writer.wait_closed()

    async with opened(end, folder, half) as (reader, _):
        exc = await refused(soon(reader.readexactly(10)), asyncio.IncompleteReadError)
        equal(exc.partial, b"half")


@row("StreamWriter.start_tls(), both ends")
async def start_tls(loop, folder):
    async def upgrade(reader, writer):
        equal(await reader.readline(), b"STARTTLS\n")
        writer.write(b"go\n")
        await writer.start_tls(server_context())
        await echo(reader, writer)

    async with opened("TCP", folder, upgrade) as (reader, writer):
        writer.write(b"STARTTLS\n")
        equal(await soon(reader.readline()), b"go\n")
        await soon(writer.start_tls(client_context(), server_hostname="localhost"))
        writer.write(b"secret\n")
        equal(await soon(reader.readline()), b"secret\n")
        assert writer.get_extra_info("cipher"), "no TLS"


@row("an exception in the client handler is reported")
async def failing_handler(loop, folder):
    async def fail(reader, writer):
        writer.close()
        raise LookupError("mine")

    reports = []
    loop.set_exception_handler(lambda loop, context: reports.append(context.get("exception")))
    async with opened("TCP", folder, fail) as (reader, _):
        equal(await soon(reader.read()), b"")
        await turns(6)
    equal([type(exc) for exc in reports], [LookupError])
