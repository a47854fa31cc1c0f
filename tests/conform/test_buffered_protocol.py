"""Protocols that bring their own buffer."""
import os

import pytest
from support.loops import without_debug
from support.net import attach, connected, socket_pair
from support.protocols import BufferedRecorder, Recorder
from support.waiting import quiet, turns, until


@pytest.mark.parametrize("size", [1, 2, 7, 100, 4096, 65536, 65537, 300_000])
async def test_buffer_of_any_size(loop, kind, size):
    data = os.urandom(max(200, min(2 * size + 3, 200_000)))
    async with connected(loop, kind, lambda: BufferedRecorder(size)) as (_, protocol, peer):
        sending = loop.create_task(peer.send(data))
        assert await protocol.until_received(len(data)) == data
        await sending
        assert all(call[1] <= size for call in protocol.calls if call[0] == "buffer_updated")


@pytest.mark.parametrize("size", [1, 3, 100])
async def test_short_buffers_then_the_end(loop, kind, size):
    near, far = socket_pair(kind)
    far.send(b"0123456789" * 20)
    far.close()
    _, protocol = await attach(loop, near, lambda: BufferedRecorder(size))
    assert await protocol.until_lost() is None
    assert protocol.received == b"0123456789" * 20
    assert protocol.count("eof_received") == 1


async def test_size_hint_is_an_integer(loop, kind):
    async with connected(loop, kind, BufferedRecorder) as (_, protocol, peer):
        await peer.send(b"x")
        await protocol.until_received(1)
        assert protocol.hints
        assert all(isinstance(hint, int) for hint in protocol.hints)


async def test_buffer_may_change_each_time(loop, kind):
    class Growing(BufferedRecorder):
        def get_buffer(self, sizehint):
            self.buffer = bytearray(len(self.buffer) + 1)
            return self.buffer

    async with connected(loop, kind, lambda: Growing(0)) as (_, protocol, peer):
        await peer.send(b"0123456789" * 10)
        assert await protocol.until_received(100) == b"0123456789" * 10


async def test_part_of_a_larger_buffer(loop, kind):
    class Window(BufferedRecorder):
        store = bytearray(b"." * 30)

        def get_buffer(self, sizehint):
            return memoryview(self.store)[10:20]

        def buffer_updated(self, nbytes):
            self.received += self.store[10:10 + nbytes]
            self.note("buffer_updated", nbytes)

    async with connected(loop, kind, Window) as (_, protocol, peer):
        await peer.send(b"abcdefghijklmnop")
        assert await protocol.until_received(16) == b"abcdefghijklmnop"
        assert protocol.store[:10] == protocol.store[20:] == b"." * 10


async def test_buffer_is_free_inside_buffer_updated(loop, kind):
    """The transport holds no view of the buffer then: a bytearray can be resized."""
    class Resizes(BufferedRecorder):
        def buffer_updated(self, nbytes):
            super().buffer_updated(nbytes)
            self.buffer.extend(b"x")
            self.buffer.clear()
            self.buffer.extend(bytes(10))

    async with connected(loop, kind, lambda: Resizes(10)) as (_, protocol, peer):
        for i in range(5):
            await peer.send(b"0123456789")
            await protocol.until_received(10 * (i + 1))


async def test_empty_buffer_is_an_error(loop, kind, unhandled):
    async with connected(loop, kind, lambda: BufferedRecorder(0)) as (_, protocol, peer):
        await peer.send(b"x")
        exc = await protocol.until_lost()
        assert isinstance(exc, RuntimeError)
        assert "empty buffer" in str(exc)
        context = unhandled.take_one()
        assert context["exception"] is exc
        assert "get_buffer" in context["message"]


@pytest.mark.parametrize("bad", [None, b"read only", "text", 5])
async def test_what_is_no_writable_buffer_is_an_error(loop, kind, bad, unhandled):
    class Bad(BufferedRecorder):
        def get_buffer(self, sizehint):
            return bad

    async with connected(loop, kind, Bad) as (_, protocol, peer):
        await peer.send(b"x")
        assert isinstance(await protocol.until_lost(), (TypeError, BufferError))
        unhandled.take_one()


async def test_pausing_in_buffer_updated(loop, kind):
    class Pauses(BufferedRecorder):
        def buffer_updated(self, nbytes):
            super().buffer_updated(nbytes)
            self.transport.pause_reading()

    async with connected(loop, kind, lambda: Pauses(10)) as (transport, protocol, peer):
        await peer.send(b"0123456789" * 3)
        for i in range(1, 4):
            await protocol.until_called("buffer_updated", i)
            await quiet()
            assert protocol.received == b"0123456789" * i
            transport.resume_reading()


async def test_closing_in_buffer_updated(loop, kind):
    class Closes(BufferedRecorder):
        def buffer_updated(self, nbytes):
            super().buffer_updated(nbytes)
            self.transport.close()

    async with connected(loop, kind, lambda: Closes(5)) as (_, protocol, peer):
        await peer.send(b"0123456789")
        assert await protocol.until_lost() is None
        assert protocol.received == b"01234"


async def test_other_protocol_in_buffer_updated(loop, kind):
    second = Recorder()

    class First(BufferedRecorder):
        def buffer_updated(self, nbytes):
            super().buffer_updated(nbytes)
            self.transport.set_protocol(second)

    async with connected(loop, kind, lambda: First(3)) as (transport, first, peer):
        second.transport = transport
        await peer.send(b"0123456789")
        assert await second.until_received(7) == b"3456789"
        assert first.received == b"012"


async def test_nothing_is_asked_for_while_paused(loop, kind):
    async with connected(loop, kind, BufferedRecorder) as (transport, protocol, peer):
        transport.pause_reading()
        await peer.send(b"x")
        await quiet()
        assert protocol.hints == []
        transport.resume_reading()
        await protocol.until_received(1)


@without_debug("moves megabytes")
async def test_megabytes_through_a_small_buffer(loop, kind):
    data = os.urandom(1 << 20)
    async with connected(loop, kind, lambda: BufferedRecorder(1000)) as (_, protocol, peer):
        sending = loop.create_task(peer.send(data))
        await until(lambda: len(protocol.received) == len(data))
        assert protocol.received == data
        await sending


async def test_protocol_that_is_both_is_treated_as_buffered(loop, kind):
    import asyncio

    class Both(BufferedRecorder, asyncio.Protocol):
        def data_received(self, data):
            self.note("data_received", data)

    async with connected(loop, kind, Both) as (_, protocol, peer):
        await peer.send(b"x")
        await protocol.until_received(1)
        await turns()
        assert protocol.count("data_received") == 0
