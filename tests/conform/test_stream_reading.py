"""What a stream transport delivers, and when it holds back."""
import asyncio
import os
import socket
import time
from typing import ClassVar

import pytest
from support.loops import without_debug
from support.net import Peer, attach, connected, socket_pair, tcp_pair, unix_pair
from support.protocols import BufferedRecorder, HalfOpenRecorder, Recorder
from support.waiting import quiet, soon, turns, until

READ_BYTES = 65536      # what one read takes at most
RECORDERS = (Recorder, BufferedRecorder)


@pytest.fixture(params=RECORDERS, ids=["protocol", "buffered"])
def recorder(request):
    return request.param


async def test_data_arrive(loop, kind, recorder):
    async with connected(loop, kind, recorder) as (_, protocol, peer):
        await peer.send(b"hello")
        assert await protocol.until_received(5) == b"hello"
        await peer.send(b" again")
        assert await protocol.until_received(11) == b"hello again"


async def test_connection_made_comes_first_and_once(loop, kind, recorder):
    near, far = socket_pair(kind)
    far.send(b"early")
    transport, protocol = await attach(loop, near, recorder)
    await protocol.until_received(5)
    assert protocol.calls[0][0] == "connection_made"
    assert protocol.count("connection_made") == 1
    assert protocol.transport is transport
    transport.abort()
    far.close()
    await protocol.until_lost()


async def test_data_received_gets_bytes(loop, kind):
    class Types(Recorder):
        types: ClassVar = set()

        def data_received(self, data):
            super().data_received(data)
            self.types.add(type(data))

    async with connected(loop, kind, Types) as (_, protocol, peer):
        for size in (1, 1000, 200_000):
            await peer.send(b"x" * size)
            await protocol.until_received(size)
        assert protocol.types == {bytes}


@pytest.mark.parametrize(
    "size", [1, 4095, 4096, READ_BYTES - 1, READ_BYTES, READ_BYTES + 1, 4 * READ_BYTES]
)
async def test_message_of_any_size_then_silence_then_more(loop, kind, recorder, size):
    async with connected(loop, kind, recorder) as (_, protocol, peer):
        message = os.urandom(size)
        await peer.send(message)
        assert await protocol.until_received(size) == message
        await peer.send(b"more")
        assert (await protocol.until_received(size + 4)).endswith(b"more")


async def test_many_small_messages(loop, kind, recorder):
    async with connected(loop, kind, recorder) as (_, protocol, peer):
        sent = b""
        for i in range(200):
            message = b"%d;" % i
            sent += message
            await peer.send(message)
            if i % 20 == 0:
                await turns()
        assert await protocol.until_received(len(sent)) == sent


async def test_kept_data_are_not_overwritten(loop, kind):
    """A loop that reads into a shared buffer must hand out copies."""
    async with connected(loop, kind, Recorder) as (_, protocol, peer):
        for i in range(5):
            await peer.send(bytes([i]) * 1000)
            await protocol.until_received(1000 * (i + 1))
        chunks = b"".join(call[1] for call in protocol.calls if call[0] == "data_received")
        assert chunks == b"".join(bytes([i]) * 1000 for i in range(5))


@without_debug("moves megabytes")
async def test_megabytes_arrive_unchanged(loop, kind, recorder):
    async with connected(loop, kind, recorder) as (_, protocol, peer):
        data = os.urandom(1 << 20) * 4
        sending = loop.create_task(peer.send(data))
        assert await protocol.until_received(len(data)) == data
        await sending


async def test_data_and_end_before_the_first_wait(loop, kind, recorder):
    near, far = socket_pair(kind)
    far.send(b"all at once")
    far.close()
    _, protocol = await attach(loop, near, recorder)
    assert await protocol.until_lost() is None
    assert protocol.received == b"all at once"
    names = [name for name in protocol.names if name != "buffer_updated"]
    assert names[-2:] == ["eof_received", "connection_lost"]
    assert protocol.count("eof_received") == 1


async def test_data_and_end_in_one_go(loop, kind, recorder):
    async with connected(loop, kind, recorder) as (_, protocol, peer):
        await turns()
        await peer.send(b"last words")
        peer.close()
        assert await protocol.until_lost() is None
        assert protocol.received == b"last words"
        assert protocol.count("eof_received") == 1


async def test_end_alone(loop, kind, recorder):
    async with connected(loop, kind, recorder) as (_, protocol, peer):
        peer.close()
        assert await protocol.until_lost() is None
        assert protocol.names == ["connection_made", "eof_received", "connection_lost"]


@pytest.mark.parametrize("size", [READ_BYTES, 2 * READ_BYTES, READ_BYTES + 1])
async def test_end_after_full_reads(loop, kind, recorder, size):
    async with connected(loop, kind, recorder) as (_, protocol, peer):
        await peer.send(b"x" * size)
        peer.close()
        assert await protocol.until_lost() is None
        assert len(protocol.received) == size
        assert protocol.count("eof_received") == 1


async def test_true_from_eof_received_keeps_the_connection(loop, kind):
    async with connected(loop, kind, HalfOpenRecorder) as (transport, protocol, peer):
        peer.sock.shutdown(socket.SHUT_WR)
        await protocol.until_called("eof_received")
        await quiet()
        assert protocol.count("eof_received") == 1
        assert protocol.count("connection_lost") == 0
        assert not transport.is_closing()
        transport.write(b"answer")
        assert await peer.recv_exactly(6) == b"answer"
        transport.close()
        assert await protocol.until_lost() is None


async def test_reset_after_data(loop, recorder):
    """The data come first, then the error."""
    near, far = tcp_pair()
    far.send(b"before the reset")
    Peer(far).reset()
    _, protocol = await attach(loop, near, recorder)
    exc = await protocol.until_lost()
    assert protocol.received in (b"", b"before the reset")
    assert isinstance(exc, ConnectionResetError) or protocol.count("eof_received") == 1


async def test_reset_after_delivered_data(loop, recorder):
    async with connected(loop, "tcp", recorder) as (_, protocol, peer):
        await peer.send(b"data")
        await protocol.until_received(4)
        peer.reset()
        assert isinstance(await protocol.until_lost(), ConnectionResetError)
        assert protocol.count("connection_lost") == 1
        assert protocol.count("eof_received") == 0


async def test_urgent_byte_does_not_stop_the_stream(loop):
    """The kernel ends a read at the urgent mark; what is behind it must arrive as well."""
    async with connected(loop, "tcp", Recorder) as (_, protocol, peer):
        peer.sock.send(b"before")
        peer.sock.send(b"!", socket.MSG_OOB)
        peer.sock.send(b"after")
        assert await protocol.until_received(11) == b"beforeafter"
        await peer.send(b" and on")
        assert (await protocol.until_received(18)).endswith(b" and on")


async def test_urgent_byte_inline(loop):
    async with connected(loop, "tcp", Recorder) as (transport, protocol, peer):
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)
        peer.sock.send(b"before")
        peer.sock.send(b"!", socket.MSG_OOB)
        peer.sock.send(b"after")
        assert await protocol.until_received(12) == b"before!after"


async def test_urgent_byte_and_end(loop):
    async with connected(loop, "tcp", Recorder) as (_, protocol, peer):
        peer.sock.send(b"one")
        peer.sock.send(b"!", socket.MSG_OOB)
        peer.sock.send(b"two")
        peer.close()
        assert await protocol.until_lost() is None
        assert protocol.received == b"onetwo"


async def test_descriptors_in_the_stream_do_not_stop_it(loop):
    """A read of a Unix socket ends where descriptors were sent; the rest must arrive as well."""
    near, far = unix_pair()
    far.send(b"before")
    with open(os.devnull, "rb") as passed:
        socket.send_fds(far, [b"with"], [passed.fileno()])
    far.send(b"after")
    _, protocol = await attach(loop, near, Recorder)
    assert await protocol.until_received(15) == b"beforewithafter"
    far.close()
    assert await protocol.until_lost() is None


async def test_descriptors_in_a_live_stream(loop):
    async with connected(loop, "unix", Recorder) as (_, protocol, peer):
        for i in range(5):
            peer.sock.send(b"plain")
            socket.send_fds(peer.sock, [b"extra"], [peer.sock.fileno()])
            peer.sock.send(b"plain")
            assert len(await protocol.until_received(15 * (i + 1))) == 15 * (i + 1)
    assert protocol.received == b"plainextraplain" * 5


async def test_pausing_stops_delivery(loop, kind, recorder):
    async with connected(loop, kind, recorder) as (transport, protocol, peer):
        transport.pause_reading()
        await peer.send(b"held back")
        await quiet()
        assert protocol.received == b""
        transport.resume_reading()
        assert await protocol.until_received(9) == b"held back"


async def test_is_reading(loop, kind):
    async with connected(loop, kind, Recorder) as (transport, _, _peer):
        assert transport.is_reading()
        transport.pause_reading()
        assert not transport.is_reading()
        transport.resume_reading()
        assert transport.is_reading()
        transport.close()
        assert not transport.is_reading()


async def test_pausing_twice_is_the_same_as_once(loop, kind):
    async with connected(loop, kind, Recorder) as (transport, protocol, peer):
        transport.pause_reading()
        transport.pause_reading()
        transport.resume_reading()
        assert transport.is_reading()
        transport.resume_reading()
        await peer.send(b"x")
        await protocol.until_received(1)


async def test_pausing_a_closing_transport_does_nothing(loop, kind):
    async with connected(loop, kind, Recorder) as (transport, protocol, _):
        transport.close()
        transport.pause_reading()
        transport.resume_reading()
        assert not transport.is_reading()
        assert await protocol.until_lost() is None


async def test_pause_in_connection_made(loop, kind):
    class Paused(Recorder):
        def connection_made(self, transport):
            super().connection_made(transport)
            transport.pause_reading()

    near, far = socket_pair(kind)
    far.send(b"early")
    transport, protocol = await attach(loop, near, Paused)
    await quiet()
    assert protocol.received == b""
    transport.resume_reading()
    assert await protocol.until_received(5) == b"early"
    transport.abort()
    far.close()
    await protocol.until_lost()


class PausesItself(Recorder):
    """Takes one piece at a time."""

    def data_received(self, data):
        super().data_received(data)
        self.transport.pause_reading()


async def test_pause_in_data_received_holds_the_rest_back(loop, kind):
    async with connected(loop, kind, PausesItself) as (transport, protocol, peer):
        sending = loop.create_task(peer.send(b"x" * (8 * READ_BYTES)))
        await protocol.until_called("data_received")
        await quiet()
        assert protocol.count("data_received") == 1
        while len(protocol.received) < 8 * READ_BYTES:
            count = protocol.count("data_received")
            transport.resume_reading()
            await protocol.until(lambda p, n=count: p.count("data_received") > n)
        await sending


async def test_resume_delivers_without_new_traffic(loop, kind):
    near, far = socket_pair(kind)
    far.send(b"a")
    transport, protocol = await attach(loop, near, PausesItself)
    await protocol.until_called("data_received")
    far.send(b"b" * 100)
    await quiet()
    assert protocol.received == b"a"
    loop.call_soon(transport.resume_reading)
    await protocol.until_called("data_received", 2)
    assert protocol.received == b"a" + b"b" * 100
    transport.abort()
    far.close()
    await protocol.until_lost()


async def test_pause_and_resume_in_one_callback(loop, kind, recorder):
    class Wavering(recorder):
        def note(self, name, *args):
            super().note(name, *args)
            if name in ("data_received", "buffer_updated"):
                self.transport.pause_reading()
                self.transport.resume_reading()

    async with connected(loop, kind, Wavering) as (_, protocol, peer):
        data = os.urandom(5 * READ_BYTES)
        sending = loop.create_task(peer.send(data))
        assert await protocol.until_received(len(data)) == data
        await sending


async def test_resume_does_not_call_the_protocol_from_inside(loop, kind, recorder):
    async with connected(loop, kind, recorder) as (transport, protocol, peer):
        transport.pause_reading()
        await peer.send(b"x")
        await quiet()
        transport.resume_reading()
        assert protocol.received == b""
        await protocol.until_received(1)


async def test_data_and_end_while_paused(loop, kind, recorder):
    async with connected(loop, kind, recorder) as (transport, protocol, peer):
        transport.pause_reading()
        await peer.send(b"last words")
        peer.close()
        await quiet()
        assert protocol.names == ["connection_made"]
        transport.resume_reading()
        assert await protocol.until_lost() is None
        assert protocol.received == b"last words"
        assert protocol.count("eof_received") == 1


async def test_paused_for_good_can_still_be_closed(loop, kind):
    async with connected(loop, kind, Recorder) as (transport, protocol, peer):
        transport.pause_reading()
        await peer.send(b"never read")
        await quiet()
        transport.close()
        assert await protocol.until_lost() is None
        assert protocol.received == b""


async def test_close_in_data_received_ends_delivery(loop, kind):
    class Closes(Recorder):
        def data_received(self, data):
            super().data_received(data)
            self.transport.close()

    async with connected(loop, kind, Closes) as (_, protocol, peer):
        await peer.send(b"x" * 1000)
        assert await protocol.until_lost() is None
        assert protocol.count("data_received") == 1


async def test_nothing_is_delivered_after_close(loop, kind, recorder):
    async with connected(loop, kind, recorder) as (transport, protocol, peer):
        await peer.send(b"x")
        transport.close()
        assert await protocol.until_lost() is None
        assert protocol.received == b""
        assert protocol.count("eof_received") == 0


async def test_close_in_eof_received(loop, kind):
    class Closes(Recorder):
        def eof_received(self):
            super().eof_received()
            self.transport.close()

    async with connected(loop, kind, Closes) as (_, protocol, peer):
        peer.close()
        assert await protocol.until_lost() is None
        assert protocol.count("connection_lost") == 1


async def test_protocol_may_be_replaced_in_mid_stream(loop, kind):
    async with connected(loop, kind, Recorder) as (transport, first, peer):
        assert transport.get_protocol() is first
        await peer.send(b"one")
        await first.until_received(3)
        second = Recorder()
        second.transport = transport
        transport.set_protocol(second)
        assert transport.get_protocol() is second
        await peer.send(b"two")
        assert await second.until_received(3) == b"two"
        assert first.received == b"one"
        peer.close()
        assert await second.until_lost() is None
        assert first.count("connection_lost") == 0


async def test_protocol_may_be_replaced_in_data_received(loop, kind):
    second = Recorder()

    class First(Recorder):
        def data_received(self, data):
            super().data_received(data)
            self.transport.set_protocol(second)

    async with connected(loop, kind, First) as (transport, first, peer):
        second.transport = transport
        await peer.send(b"one")
        await first.until_received(3)
        await peer.send(b"two")
        assert await second.until_received(3) == b"two"


async def test_plain_protocol_may_give_way_to_a_buffered_one_and_back(loop, kind):
    async with connected(loop, kind, Recorder) as (transport, plain, peer):
        buffered = BufferedRecorder()
        buffered.transport = transport
        transport.set_protocol(buffered)
        await peer.send(b"one")
        assert await buffered.until_received(3) == b"one"
        transport.set_protocol(plain)
        await peer.send(b"two")
        assert await plain.until_received(3) == b"two"


async def test_data_received_may_be_replaced_on_the_protocol(loop, kind):
    async with connected(loop, kind, Recorder) as (_, protocol, peer):
        await peer.send(b"one")
        await protocol.until_received(3)
        got = []
        protocol.data_received = got.append
        await peer.send(b"two")
        await until(lambda: got)
        assert got == [b"two"]


async def test_flood_does_not_starve_quiet_connections(loop, kind):
    async with (
        connected(loop, kind, Recorder) as (_, flooded, flood),
        connected(loop, kind, Recorder) as (_, protocol, peer),
    ):
        async def pour():
            while True:
                await flood.send(b"x" * 65536)

        pouring = loop.create_task(pour())
        await flooded.until_received(1)
        for i in range(1, 20):
            await peer.send(b"x")
            await protocol.until_received(i)
        started = loop.time()
        await asyncio.sleep(0.001)
        assert loop.time() - started < 2
        pouring.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pouring


async def test_callbacks_run_between_two_reads(loop, kind):
    """A consumer woken by one read gets its turn before the connection is read again and again."""
    class Waking(Recorder):
        consumed = 0
        most = 0

        def data_received(self, data):
            super().data_received(data)
            self.most = max(self.most, len(self.received) - self.consumed)
            loop.call_soon(self.consume)

        def consume(self):
            self.consumed = len(self.received)

    async with connected(loop, kind, Waking) as (_, protocol, peer):
        sending = loop.create_task(peer.send(b"x" * (2 << 20)))
        await protocol.until_received(2 << 20)
        await sending
        assert protocol.most <= 2 * 262144      # asyncio reads 256 KiB at once


@without_debug("moves megabytes")
async def test_stream_reader_holds_back_what_is_not_consumed(loop, kind):
    near, far = socket_pair(kind)
    peer = Peer(far)
    connect = asyncio.open_unix_connection if kind == "unix" else asyncio.open_connection
    reader, writer = await connect(sock=near, limit=4096)
    sending = loop.create_task(peer.send(b"x" * (16 << 20)))
    await quiet()
    assert len(reader._buffer) <= 2 * 4096 + 262144
    assert not sending.done()
    total = 0
    while total < 16 << 20:
        total += len(await soon(reader.read(100_000)))
    await sending
    far.close()
    assert await soon(reader.read()) == b""
    writer.close()
    await soon(writer.wait_closed())


async def test_hundred_connections_at_once(loop, kind):
    pairs = [socket_pair(kind) for _ in range(100)]
    ends = [await attach(loop, near, Recorder) for near, _ in pairs]
    for i, (_, far) in enumerate(pairs):
        far.send(b"%d" % i)
        far.close()
    for i, (_, protocol) in enumerate(ends):
        assert await protocol.until_lost() is None
        assert protocol.received == b"%d" % i


async def test_numbers_used_again_while_others_are_served(loop, kind):
    """Connections close and new ones take their numbers, inside the callbacks of one batch."""
    finished = []
    target = 200

    class Short(Recorder):
        def connection_lost(self, exc):
            super().connection_lost(exc)
            finished.append(bytes(self.received))
            if len(finished) + len(started) <= target:
                start()

    started = set()

    def start():
        near, far = socket_pair(kind)
        text = b"%d" % len(finished)
        far.send(text)
        far.close()
        task = loop.create_task(attach(loop, near, Short))
        started.add(task)
        task.add_done_callback(started.discard)

    for _ in range(20):
        start()
    await until(lambda: len(finished) >= target and not started)
    await until(lambda: all(text.isdigit() for text in finished))


def slow_factory(protocol_factory):
    """The loop asks the kernel again before it calls connection_made."""
    def make():
        time.sleep(0.002)
        return protocol_factory()
    return make


async def test_whoever_awaits_the_connection_goes_before_its_data(loop, kind, recorder):
    """It may have to name a peer before there is something to forward."""
    near, far = socket_pair(kind)
    far.send(b"early")
    transport, protocol = await attach(loop, near, slow_factory(recorder))
    assert protocol.names == ["connection_made"]
    assert await protocol.until_received(5) == b"early"
    transport.abort()
    far.close()
    await protocol.until_lost()


async def test_task_that_connection_made_starts_goes_before_the_data(loop, kind):
    class Starts(Recorder):
        def connection_made(self, transport):
            super().connection_made(transport)
            self.task = loop.create_task(self.first())

        async def first(self):
            return list(self.names)

    near, far = socket_pair(kind)
    far.send(b"early")
    transport, protocol = await attach(loop, near, slow_factory(Starts))
    await protocol.until_received(5)
    assert await protocol.task == ["connection_made"]
    transport.abort()
    far.close()
    await protocol.until_lost()
