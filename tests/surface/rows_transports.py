"""What all stream transports have in common: their class, their names, their end."""
import asyncio
import contextlib
import contextvars
import gc
import socket
import weakref

from support.net import make_reset, tcp_pair
from support.protocols import BufferedRecorder, Recorder
from support.waiting import quiet, turns

from surface.checks import equal, kind_of
from surface.ends import STREAMS, connect, fill, gone, stream
from surface.rows import subject

row = subject("Stream transports")
variable = contextvars.ContextVar("variable", default="unset")


@row("is an asyncio.Transport", ends=STREAMS)
async def transport_class(loop, end):
    async with stream(loop, end) as (transport, _, _):
        kind_of(transport, asyncio.Transport)


@row("get_extra_info(name=): socket, sockname, peername", ends=STREAMS)
async def extra_info(loop, end):
    async with stream(loop, end) as (transport, _, peer):
        near = transport.get_extra_info("socket")
        equal(near.family, peer.sock.family)
        equal(transport.get_extra_info("sockname"), peer.sock.getpeername())
        equal(transport.get_extra_info("peername"), peer.sock.getsockname())


@row("get_extra_info(default=)", ends=STREAMS)
async def extra_info_default(loop, end):
    async with stream(loop, end) as (transport, _, _):
        equal(transport.get_extra_info("no such thing"), None)
        equal(transport.get_extra_info("no such thing", 3), 3)


@row("sockname and peername are known after close()", ends=("TCP", "TLS"))
async def extra_info_late(loop, end):
    async with stream(loop, end) as (transport, protocol, _peer):
        wanted = transport.get_extra_info("sockname"), transport.get_extra_info("peername")
        await gone(transport, protocol)
        found = transport.get_extra_info("sockname"), transport.get_extra_info("peername")
        equal(found, wanted)


@row("close(), is_closing(), connection_lost(None)", ends=STREAMS)
async def close(loop, end):
    async with stream(loop, end) as (transport, protocol, peer):
        equal(transport.is_closing(), False)
        transport.close()
        equal(transport.is_closing(), True)
        equal(await peer.recv_all(), b"")
        peer.close()
        equal(await protocol.until_lost(), None)
        transport.close()


@row("close() sends 1 MiB first", ends=STREAMS)
async def close_flushes(loop, end):
    async with stream(loop, end) as (transport, protocol, peer):
        data = fill(transport)
        transport.close()
        received = await peer.recv_exactly(len(data))
        assert received == data, "other bytes"
        peer.close()
        equal(await protocol.until_lost(), None)


@row("abort() drops what is unsent", ends=STREAMS)
async def abort(loop, end):
    async with stream(loop, end) as (transport, protocol, _):
        fill(transport)
        transport.abort()
        equal(transport.is_closing(), True)
        equal(await protocol.until_lost(), None)
        transport.abort()


@row("close() in data_received() ends delivery", ends=STREAMS)
async def close_in_data_received(loop, end):
    class Closes(Recorder):
        def data_received(self, data):
            super().data_received(data)
            self.transport.close()

    async with stream(loop, end, Closes) as (_, protocol, peer):
        await peer.send(b"first")
        await protocol.until_received(5)
        with contextlib.suppress(ConnectionError):
            await peer.send(b"second")
        await quiet()
        equal(bytes(protocol.received), b"first")


@row("set_protocol(protocol=), get_protocol()", ends=STREAMS)
async def set_protocol(loop, end):
    async with stream(loop, end) as (transport, first, peer):
        assert transport.get_protocol() is first, "another protocol"
        second = Recorder()
        transport.set_protocol(second)
        assert transport.get_protocol() is second, "not the new protocol"
        await peer.send(b"x")
        equal(await second.until_received(1), b"x")
        equal(bytes(first.received), b"")
        transport.set_protocol(first)


@row("set_protocol() to a BufferedProtocol and back", ends=STREAMS)
async def buffered_and_back(loop, end):
    async with stream(loop, end) as (transport, plain, peer):
        buffered = BufferedRecorder()
        buffered.get_buffer = lambda hint: memoryview(buffered.buffer)
        transport.set_protocol(buffered)
        await peer.send(b"x")
        equal(await buffered.until_received(1), b"x")
        transport.set_protocol(plain)
        await peer.send(b"y")
        equal(await plain.until_received(1), b"y")


@row("callbacks run in the creator's context", ends=STREAMS)
async def context(loop, end):
    class Notes(Recorder):
        def note(self, name, *args):
            super().note(name, variable.get(), *args)

    variable.set("creator's")
    async with stream(loop, end, Notes) as (transport, protocol, peer):
        variable.set("another's")
        transport.pause_reading()
        transport.resume_reading()
        await peer.send(b"x")
        await protocol.until_received(1)
        fill(transport)
        transport.abort()
        await protocol.until_called("connection_lost")
        equal({call[0]: call[1] for call in protocol.calls}, dict.fromkeys(
            ("connection_made", "data_received", "pause_writing", "connection_lost"),
            "creator's"))


@row("an exception in data_received() ends the connection with it", ends=STREAMS)
async def raising(loop, end):
    class Raises(Recorder):
        def data_received(self, data):
            raise LookupError("mine")

    reports = []
    loop.set_exception_handler(lambda loop, context: reports.append(context))
    async with stream(loop, end, Raises) as (_, protocol, peer):
        await peer.send(b"x")
        kind_of(await protocol.until_lost(), LookupError)
    equal([type(context.get("exception")) for context in reports], [LookupError])


@row("a reset is a ConnectionResetError")
async def reset(loop):
    async with stream(loop, "TCP") as (_, protocol, peer):
        peer.reset()
        kind_of(await protocol.until_lost(), ConnectionResetError)


@row("the protocol is freed at the end, if the transport is not", ends=STREAMS)
async def freed(loop, end):
    async with stream(loop, end) as (transport, protocol, peer):
        transport.write(b"x" * 1000)
        await peer.recv_exactly(1000)
        alive = weakref.ref(protocol)
    del protocol, peer
    await turns()
    gc.collect()
    assert alive() is None, "the transport keeps its protocol"
    equal(transport.is_closing(), True)


@row("SO_LINGER and other options can be set by get_extra_info('socket')")
async def options(loop):
    near, far = tcp_pair()
    transport, protocol = await connect(loop, "TCP", near, Recorder)
    make_reset(transport.get_extra_info("socket"))
    transport.close()
    await protocol.until_lost()
    await turns(4)
    try:
        found = far.recv(1)
    except OSError as exc:
        found = exc
    far.close()
    kind_of(found, ConnectionResetError)


@row("close() and abort() after the end do no harm to others")
async def late_close(loop):
    near, far = tcp_pair()
    transport, protocol = await connect(loop, "TCP", near, Recorder)
    transport.close()
    await protocol.until_lost()
    await turns(4)
    other, other_far = socket.socketpair()      # has the same number now
    transport.close()
    await quiet()
    other.send(b"x")
    equal(other_far.recv(1), b"x")
    for sock in (far, other, other_far):
        sock.close()
