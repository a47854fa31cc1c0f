"""Reading from stream transports."""
import asyncio
import socket

from support.protocols import BufferedRecorder, HalfOpenRecorder, Recorder
from support.waiting import quiet, turns

from surface.checks import equal
from surface.ends import PLAIN, STREAMS, stream
from surface.rows import subject

row = subject("Reading from streams")


class ViewRecorder(BufferedRecorder):
    def get_buffer(self, sizehint):
        return memoryview(super().get_buffer(sizehint))


async def receive(peer, protocol, size=200_000):
    """Send so much to the protocol, which must get the same."""
    data = bytes(range(250)) * (size // 250)
    received, _ = await asyncio.gather(protocol.until_received(len(data)), peer.send(data))
    assert received == data, "other bytes"


@row("data_received(): 200 kB", ends=STREAMS)
async def data_received(loop, end):
    async with stream(loop, end) as (_, protocol, peer):
        await receive(peer, protocol)


@row("BufferedProtocol with a memoryview: 200 kB", ends=STREAMS)
async def memoryview_buffer(loop, end):
    async with stream(loop, end, ViewRecorder) as (_, protocol, peer):
        await receive(peer, protocol)


@row("BufferedProtocol with a bytearray: 200 kB", ends=STREAMS)
async def bytearray_buffer(loop, end):
    async with stream(loop, end, BufferedRecorder) as (_, protocol, peer):
        await receive(peer, protocol)


@row("BufferedProtocol with a small buffer", ends=STREAMS)
async def small_buffer(loop, end):
    async with stream(loop, end, lambda: ViewRecorder(100)) as (_, protocol, peer):
        await receive(peer, protocol, 20_000)


@row("pause_reading(), resume_reading(), is_reading()", ends=STREAMS)
async def pause(loop, end):
    async with stream(loop, end) as (transport, protocol, peer):
        equal(transport.is_reading(), True)
        transport.pause_reading()
        transport.pause_reading()
        equal(transport.is_reading(), False)
        await peer.send(b"x")
        await quiet()
        equal(bytes(protocol.received), b"")
        transport.resume_reading()
        transport.resume_reading()
        equal(transport.is_reading(), True)
        equal(bytes(protocol.received), b"", "at once")
        equal(await protocol.until_received(1), b"x")


@row("pause_reading() in data_received() holds the rest back", ends=STREAMS)
async def pause_inside(loop, end):
    class Pauses(Recorder):
        def data_received(self, data):
            super().data_received(data)
            self.transport.pause_reading()

    async with stream(loop, end, Pauses) as (transport, protocol, peer):
        await peer.send(b"first")
        await protocol.until_received(5)
        await peer.send(b"second")
        await quiet()
        equal(bytes(protocol.received), b"first")
        transport.resume_reading()
        equal(await protocol.until_received(11), b"firstsecond")


@row("the end of the stream: eof_received(), then connection_lost(None)", ends=STREAMS)
async def eof(loop, end):
    async with stream(loop, end) as (_, protocol, peer):
        await peer.send(b"x")
        await (peer.unwrap() if end == "TLS" else turns())
        peer.close()
        equal(await protocol.until_lost(), None)
        equal(protocol.names,
              ["connection_made", "data_received", "eof_received", "connection_lost"])


@row("eof_received() that returns true keeps the other half open", ends=PLAIN)
async def half_open(loop, end):
    async with stream(loop, end, HalfOpenRecorder) as (transport, protocol, peer):
        peer.sock.shutdown(socket.SHUT_WR)
        await protocol.until_called("eof_received")
        await quiet()
        equal(transport.is_closing(), False)
        transport.write(b"still")
        equal(await peer.recv_exactly(5), b"still")


@row("data and end that came while paused are delivered in order", ends=PLAIN)
async def paused_end(loop, end):
    async with stream(loop, end) as (transport, protocol, peer):
        transport.pause_reading()
        await peer.send(b"last words")
        peer.close()
        await quiet()
        equal(protocol.names, ["connection_made"])
        transport.resume_reading()
        await protocol.until_lost()
        equal(bytes(protocol.received), b"last words")
