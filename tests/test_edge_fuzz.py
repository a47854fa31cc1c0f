"""Random writes and a close, over thousands of connections: every byte and the end arrive.

What this is after: epoll(7) says of edge-triggered streams that a short read proves that there is
no more. It proves it for data, not for the end of the stream: data and FIN that are queued before
the wait make one event, and none follows. A reader that forgets this stalls after a few
connections, which the last test here shows.
"""
import asyncio
import random
import select
import socket
import time

import pytest
from support.loops import without_debug
from support.net import STREAM_KINDS, attach, socket_pair
from support.protocols import BufferedRecorder, Recorder

CONNECTIONS = 1200
AT_ONCE = 40
# Whatever a reader takes at once, these are the sizes around it.
EDGES = (1, 2, 4095, 4096, 4097, 16384, 65535, 65536, 65537)
ALL_AT_ONCE_BYTES = 20_000      # surely fits into the socket's buffer
STALLED_S = 10.0        # generous, for a busy machine

random_sizes = random.Random(20240229)


def random_writes(pick):
    """Sizes of the writes of one connection, and whether the loop gets a turn after each."""
    return [
        (pick.choice(EDGES) if pick.random() < 0.2 else pick.randint(1, 3000), pick.random() < 0.3)
        for _ in range(pick.randint(0, 4))
    ]


async def write_and_close(far, data, writes):
    start = 0
    for size, pause in writes:
        view = memoryview(data)[start:start + size]
        start += size
        while view:
            try:
                view = view[far.send(view):]
            except BlockingIOError:
                await asyncio.sleep(0)
        if pause:
            await asyncio.sleep(0)
    far.close()


class Stalled(Exception):
    """A connection has neither data nor an end to show."""


async def one_connection(kind, pick, receive, stalled_s):
    """Fuzz one connection; `receive(sock)` is a coroutine that gives what it received."""
    loop = asyncio.get_running_loop()
    near, far = socket_pair(kind)
    writes = random_writes(pick)
    data = pick.randbytes(sum(size for size, _ in writes))
    if len(data) <= ALL_AT_ONCE_BYTES and pick.random() < 0.5:      # before the first wait
        await write_and_close(far, data, writes)
        received = loop.create_task(receive(near))
    else:
        received = loop.create_task(receive(near))
        await write_and_close(far, data, writes)
    try:
        got = await asyncio.wait_for(received, stalled_s)
    except TimeoutError:
        near.close()
        raise Stalled from None
    assert got == data


async def fuzz(kind, receive, connections, stalled_s=STALLED_S):
    """Run so many connections, some at once; raises Stalled at the first one that does not end."""
    pick = random.Random(17)

    async def worker():
        for _ in range(connections // AT_ONCE):
            await one_connection(kind, pick, receive, stalled_s)

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(worker())


def transport_receiver(loop, factory):
    """Receive by a transport of the loop."""
    async def receive(sock):
        _, protocol = await attach(loop, sock, factory)
        if protocol.count("connection_lost") == 0:
            ended = loop.create_future()
            protocol.ended = ended
            await ended
        assert protocol.calls[-1] == ("connection_lost", None)
        assert protocol.count("eof_received") == 1
        return protocol.received

    return receive


class Ending:
    """Resolves its future at the end: cheaper than waiting for each call."""

    ended = None

    def connection_lost(self, exc):
        super().connection_lost(exc)
        if self.ended is not None and not self.ended.done():
            self.ended.set_result(None)


class Plain(Ending, Recorder):
    pass


class Buffered(Ending, BufferedRecorder):
    """Short buffers: the transport's own idea of a full read does not help."""

    def __init__(self):
        super().__init__(4096)


@without_debug("thousands of connections")
@pytest.mark.parametrize("kind", STREAM_KINDS)
@pytest.mark.parametrize("factory", [Plain, Buffered])
@pytest.mark.time_limit(60)
async def test_every_byte_and_the_end_arrive(loop, kind, factory):
    await fuzz(kind, transport_receiver(loop, factory), CONNECTIONS)


class PausesAtRandom(Plain):
    """Stops reading now and then, and goes on a little later."""

    def data_received(self, data):
        super().data_received(data)
        if random_sizes.random() < 0.5:
            self.transport.pause_reading()
            asyncio.get_running_loop().call_later(
                random_sizes.choice((0, 0.0005)), self.transport.resume_reading
            )


@without_debug("thousands of connections")
@pytest.mark.parametrize("kind", STREAM_KINDS)
@pytest.mark.time_limit(60)
async def test_every_byte_and_the_end_arrive_through_pauses(loop, kind):
    await fuzz(kind, transport_receiver(loop, PausesAtRandom), CONNECTIONS // 2)


class NaiveReader:
    """The mistake: a short read is taken for the proof that no event is missed."""

    def __init__(self, loop):
        self.loop = loop
        self.epoll = select.epoll()
        self.open = {}
        loop.add_reader(self.epoll, self.on_events)

    def close(self):
        self.loop.remove_reader(self.epoll)
        self.epoll.close()

    async def receive(self, sock):
        future = self.loop.create_future()
        self.open[sock.fileno()] = sock, bytearray(), future
        self.epoll.register(sock, select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET)
        try:
            return await future
        finally:
            del self.open[sock.fileno()]
            sock.close()

    def on_events(self):
        for fd, _ in self.epoll.poll(0):
            if fd in self.open:
                self.read(*self.open[fd])

    def read(self, sock, data, future):
        try:
            some = sock.recv(4096)
        except BlockingIOError:
            return
        data += some
        if not some:
            if not future.done():
                future.set_result(data)
        elif len(some) == 4096:
            self.loop.call_soon(self.read, sock, data, future)


@pytest.mark.parametrize("kind", STREAM_KINDS)
def test_a_naive_reader_is_found_out_at_once(kind):
    async def main():
        reader = NaiveReader(asyncio.get_running_loop())
        try:
            with pytest.raises(ExceptionGroup) as caught:
                await fuzz(kind, reader.receive, AT_ONCE, stalled_s=0.5)
        finally:
            reader.close()
        assert caught.group_contains(Stalled)

    started = time.monotonic()
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        runner.run(main())
    assert time.monotonic() - started < 5


def test_the_socket_helpers_make_streams():
    for kind in STREAM_KINDS:
        for sock in socket_pair(kind):
            assert sock.type == socket.SOCK_STREAM
            sock.close()
