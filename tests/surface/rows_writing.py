"""Writing to stream transports, and flow control."""
from array import array

from support.waiting import turns, until

from surface.checks import equal, raises
from surface.ends import PLAIN, STREAMS, fill, stream
from surface.rows import subject

row = subject("Writing to streams")


@row("write(data=): bytes, bytearray, memoryview", ends=STREAMS)
async def write(loop, end):
    async with stream(loop, end) as (transport, _, peer):
        for data in (b"one", bytearray(b"two"), memoryview(b"three"), b"",
                     memoryview(array("I", [0x64636261]))):
            transport.write(data)
        equal(await peer.recv_exactly(15), b"onetwothreeabcd")


@row("write() goes out at once", ends=PLAIN)
async def at_once(loop, end):
    async with stream(loop, end) as (transport, _, peer):
        transport.write(b"now")
        equal(peer.recv_now(), b"now")


@row("writelines(list_of_data=): 3000 parts", ends=STREAMS)
async def writelines(loop, end):
    async with stream(loop, end) as (transport, _, peer):
        parts = [b"%d," % number for number in range(3000)]
        transport.writelines(iter(parts))
        wanted = b"".join(parts)
        assert await peer.recv_exactly(len(wanted)) == wanted, "other bytes"


@row("writelines() takes part in flow control", ends=STREAMS)
async def writelines_pauses(loop, end):
    async with stream(loop, end) as (transport, protocol, _):
        fill(transport, lambda data: transport.writelines([data[:1 << 19], data[1 << 19:]]))
        equal(protocol.count("pause_writing"), 1)


@row("what is not bytes-like is a TypeError", ends=STREAMS)
async def wrong_type(loop, end):
    async with stream(loop, end) as (transport, _, _):
        for data in ("text", None, 3, [b"x"]):
            with raises(TypeError):
                transport.write(data)


@row("writelines() of what is not bytes-like is a TypeError", ends=STREAMS)
async def wrong_lines(loop, end):
    async with stream(loop, end) as (transport, _, _):
        with raises(TypeError):
            transport.writelines(["text"])


@row("a bytearray changed after write() was sent as it was", ends=STREAMS)
async def snapshot(loop, end):
    async with stream(loop, end) as (transport, _, peer):
        sent = fill(transport)
        for data in (bytearray(b"before"), bytearray(b"x" * 100_000)):
            view = memoryview(data)
            transport.write(data)
            transport.writelines([view])
            sent += bytes(data) * 2
            data[:] = b"!" * len(data)
        assert await peer.recv_exactly(len(sent)) == sent, "what was there later"


@row("a bytearray can be resized after write()", ends=STREAMS)
async def resize(loop, end):
    async with stream(loop, end) as (transport, _, _):
        fill(transport)
        data = bytearray(100_000)
        transport.write(data)
        del data[:50_000]


@row("get_write_buffer_limits(): 16 KiB and 64 KiB", ends=STREAMS)
async def default_limits(loop, end):
    async with stream(loop, end) as (transport, _, _):
        low, high = transport.get_write_buffer_limits()
        # asyncio's TLS has larger ones.
        equal((low, high), (high // 4, high) if end == "TLS" else (16 * 1024, 64 * 1024))


@row("set_write_buffer_limits(high=, low=)", ends=STREAMS)
async def set_limits(loop, end):
    async with stream(loop, end) as (transport, protocol, _):
        transport.set_write_buffer_limits(high=4000, low=1000)
        equal(transport.get_write_buffer_limits(), (1000, 4000))
        transport.set_write_buffer_limits(high=4000)
        equal(transport.get_write_buffer_limits(), (1000, 4000))
        transport.set_write_buffer_limits(low=1000)
        equal(transport.get_write_buffer_limits(), (1000, 4000))
        with raises(ValueError):
            transport.set_write_buffer_limits(high=1, low=2)
        transport.set_write_buffer_limits(high=0)
        fill(transport)
        assert protocol.count("pause_writing"), "not paused"


@row("get_write_buffer_size() counts bytes", ends=PLAIN)
async def size(loop, end):
    async with stream(loop, end) as (transport, _, peer):
        equal(transport.get_write_buffer_size(), 0)
        data = fill(transport)
        before = transport.get_write_buffer_size()
        transport.write(b"x" * 1000)
        equal(transport.get_write_buffer_size(), before + 1000)
        await peer.recv_exactly(len(data) + 1000)
        await until(lambda: transport.get_write_buffer_size() == 0, "an empty buffer")


@row("TLS: get_write_buffer_size() falls to 0 when the peer has read")
async def size_falls(loop):
    async with stream(loop, "TLS") as (transport, _, peer):
        equal(transport.get_write_buffer_size(), 0)
        data = fill(transport)
        await peer.recv_exactly(len(data))
        await until(lambda: transport.get_write_buffer_size() == 0, "an empty buffer")


@row("TLS: get_write_buffer_size() counts all that is unsent")
async def size_of_all(loop):
    async with stream(loop, "TLS") as (transport, _, _):
        transport.write(bytes(1 << 20))
        size = transport.get_write_buffer_size()
        assert size > 1 << 19, f"{size} of 1 MiB"


@row("pause_writing() comes inside write(), resume_writing() at the low mark", ends=STREAMS)
async def flow_control(loop, end):
    async with stream(loop, end) as (transport, protocol, peer):
        data = fill(transport)
        equal(protocol.count("pause_writing"), 1, "calls inside write()")
        await turns()
        equal(protocol.count("resume_writing"), 0)
        await peer.recv_exactly(len(data))
        await protocol.until_called("resume_writing")
        low, _ = transport.get_write_buffer_limits()
        left = next(call[1] for call in protocol.calls if call[0] == "resume_writing")
        assert left <= low, f"{left} bytes left"


@row("can_write_eof() and write_eof(): the other half stays open", ends=PLAIN)
async def write_eof(loop, end):
    async with stream(loop, end) as (transport, protocol, peer):
        equal(transport.can_write_eof(), True)
        data = fill(transport)
        transport.write_eof()
        transport.write_eof()
        equal(len(await peer.recv_all()), len(data))
        await peer.send(b"answer")
        equal(await protocol.until_received(6), b"answer")


@row("TLS: can_write_eof() is False, write_eof() a NotImplementedError")
async def no_write_eof(loop):
    async with stream(loop, "TLS") as (transport, _, _):
        equal(transport.can_write_eof(), False)
        with raises(NotImplementedError):
            transport.write_eof()


@row("write() after write_eof() is a RuntimeError", ends=PLAIN)
async def write_after_eof(loop, end):
    async with stream(loop, end) as (transport, _, _):
        transport.write_eof()
        with raises(RuntimeError):
            transport.write(b"x")
        with raises(RuntimeError):
            transport.writelines([b"x"])


@row("write() after close() is silent", ends=STREAMS)
async def write_after_close(loop, end):
    async with stream(loop, end) as (transport, protocol, peer):
        transport.write(b"sent")
        transport.close()
        transport.write(b"not sent")
        transport.writelines([b"nor this"])
        equal(await peer.recv_all(), b"sent")
        peer.close()
        await protocol.until_lost()
        transport.write(b"x")


@row("two writes of one callback leave in order", ends=STREAMS)
async def order(loop, end):
    async with stream(loop, end) as (transport, _, peer):
        for number in range(200):
            transport.write(b"%03d" % number)
        equal(await peer.recv_exactly(600), b"".join(b"%03d" % n for n in range(200)))
