"""Streams through TLS, its ciphertext cut and joined at random: no byte lost, repeated or moved.

    python tests/tls/fuzz.py --megabytes 1000 [--mode edge] [--path direct] [--seed N]

An episode is one connection of two TLS ends on one loop, with a relay between them that hands on
the ciphertext in pieces of its own choosing. It is made from its seed alone: version, sizes of
writes, kinds of protocols and buffers, pauses, key updates, who ends it and how. After an orderly
end everything must have arrived, after a rude one what arrived must be a beginning of it.
"""
import argparse
import asyncio
import contextlib
import ctypes
import os
import random
import socket
import ssl
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from support.tls import client_context, server_context

PERIOD = 1_000_003      # prime, so that a shift by any usual size shows
PATTERN = random.Random(0).randbytes(PERIOD) * 2
LIMIT_S = 60
KEY_UPDATE_REQUESTED = 1
ENDS = ("close", "close", "close", "abort", "cut", "goodbye")


def pattern(position, size):
    position %= PERIOD
    return PATTERN[position:position + size]


def update_key(ssl_object, context):
    """Change our key with the next record and ask the peer for the same; Python has no call."""
    import _ssl
    words = ctypes.cast(id(ssl_object._sslobj), ctypes.POINTER(ctypes.c_size_t))
    count = type(ssl_object._sslobj).__basicsize__ // ctypes.sizeof(ctypes.c_size_t)
    place = [words[i] for i in range(count)].index(id(context)) - 1
    function = ctypes.CDLL(_ssl.__file__).SSL_key_update
    function.argtypes = [ctypes.c_void_p, ctypes.c_int]
    assert function(words[place], KEY_UPDATE_REQUESTED) == 1


class End:
    """One end: sends its share of the pattern, checks the other's."""

    def __init__(self, rnd, size, offset, expected_offset):
        self.rnd, self.size = rnd, size
        self.offset, self.expected_offset = offset, expected_offset
        self.sent = self.received = 0
        self.can_write = asyncio.Event()
        self.can_write.set()
        self.progress = asyncio.Event()
        self.lost = asyncio.get_running_loop().create_future()
        self.ended = False
        self.transport = None

    def connection_made(self, transport):
        self.transport = transport

    def pause_writing(self):
        self.can_write.clear()

    def resume_writing(self):
        self.can_write.set()

    def take(self, data):
        wanted = pattern(self.expected_offset + self.received, len(data))
        assert data == wanted, f"other bytes at {self.received}, {len(data)} long"
        self.received += len(data)
        self.progress.set()
        if self.rnd.random() < 0.02:
            self.transport.pause_reading()
            asyncio.get_running_loop().call_later(
                self.rnd.random() * 0.002, self.transport.resume_reading)

    def eof_received(self):
        assert not self.ended, "a second eof_received()"
        self.ended = True

    def connection_lost(self, exc):
        self.can_write.set()
        self.progress.set()
        self.lost.set_result(exc)

    async def send(self, key_updates):
        rnd, transport = self.rnd, self.transport
        context = transport.get_extra_info("sslcontext")
        while self.sent < self.size and not self.lost.done():
            size = min(rnd.choice((1, 60, 1000, 16384, 16385, 70_000, 300_000)), PERIOD,
                       self.size - self.sent)
            data = pattern(self.offset + self.sent, size)
            if key_updates and rnd.random() < 0.1:
                update_key(transport.get_extra_info("ssl_object"), context)
            if rnd.random() < 0.2 and size > 3:
                transport.writelines([data[:size // 3], bytearray(data[size // 3:])])
            elif rnd.random() < 0.3:
                mutable = bytearray(data)
                transport.write(mutable)
                mutable[:] = bytes(len(mutable))
            else:
                transport.write(data)
            self.sent += size
            if rnd.random() < 0.3:
                await asyncio.sleep(0)
            await self.can_write.wait()

    async def until_received(self, size):
        while self.received < size and not self.lost.done():
            self.progress.clear()
            await self.progress.wait()


class Plain(End, asyncio.Protocol):
    def data_received(self, data):
        self.take(data)


class Buffered(End, asyncio.BufferedProtocol):
    """Offers buffers of changing sizes and kinds."""

    def get_buffer(self, sizehint):
        self.buffer = bytearray(self.rnd.choice((100, 5000, 65536)))
        return self.buffer if self.rnd.random() < 0.5 else memoryview(self.buffer)

    def buffer_updated(self, nbytes):
        self.take(bytes(self.buffer[:nbytes]))


class Relay:
    """Hands on what comes from one socket to the other, cut anew."""

    def __init__(self, loop, rnd, source, target):
        self.loop, self.rnd, self.source, self.target = loop, rnd, source, target
        self.cut = False

    async def run(self):
        try:
            while data := await self.loop.sock_recv(self.source, 1 << 18):
                while data and not self.cut:
                    size = self.rnd.choice((1, 4, 5, 6, 300, 16_400, 1 << 18))
                    await self.loop.sock_sendall(self.target, data[:size])
                    data = data[size:]
                    if self.rnd.random() < 0.05:
                        await asyncio.sleep(0)
                    # Joins: let more gather.
                    if self.rnd.random() < 0.02:
                        await asyncio.sleep(0.001)
            self.target.shutdown(socket.SHUT_WR)
        except OSError:
            self.hang_up()

    def hang_up(self):
        self.cut = True
        for sock in (self.source, self.target):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)


async def episode(seed, megabytes):
    """One connection; returns the bytes that arrived."""
    loop, rnd = asyncio.get_running_loop(), random.Random(seed)
    pairs = [socket.socketpair() for _ in range(2)]
    for sock in (sock for pair in pairs for sock in pair):
        sock.setblocking(False)
        if rnd.random() < 0.3:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
    (client_sock, near), (far, server_sock) = pairs
    relays = [Relay(loop, rnd, near, far), Relay(loop, rnd, far, near)]
    tasks = [loop.create_task(relay.run()) for relay in relays]
    version = rnd.choice((ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3))
    theirs = server_context()
    theirs.minimum_version = theirs.maximum_version = version
    sizes = [int(rnd.random() * megabytes * 1e6) for _ in range(2)]
    ends = [rnd.choice((Plain, Buffered))(rnd, sizes[i], 7919 * i, 7919 * (1 - i))
            for i in range(2)]
    accepting = loop.create_task(loop.connect_accepted_socket(
        lambda: ends[1], server_sock, ssl=theirs))
    await loop.create_unix_connection(
        lambda: ends[0], sock=client_sock, ssl=client_context(), server_hostname="localhost")
    await accepting
    updates = version is ssl.TLSVersion.TLSv1_3 and rnd.random() < 0.7
    sending = asyncio.gather(*(end.send(updates) for end in ends))
    how, first = rnd.choice(ENDS), rnd.randrange(2)
    if how in ("abort", "cut"):
        await ends[first].until_received(sizes[1 - first] * rnd.random())
        ends[first].transport.abort() if how == "abort" else relays[first].hang_up()
    else:
        await sending
        for i, end in enumerate(ends):
            # Who says goodbye first must have all; to the other everything comes before it.
            if how == "close" or i == first:
                await end.until_received(sizes[1 - i])
        ends[first].transport.close()
    for end in ends:
        await end.lost
    await sending
    if how in ("close", "goodbye"):
        assert [end.received for end in ends] == sizes[::-1], (ends[0].received, ends[1].received)
    for relay, task in zip(relays, tasks, strict=True):
        relay.hang_up()
        await task
    near.close()
    far.close()
    return sum(end.received for end in ends)


def run_episode(make_loop, seed, megabytes):
    with asyncio.Runner(loop_factory=make_loop) as runner:
        return runner.run(asyncio.wait_for(episode(seed, megabytes), LIMIT_S))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=float, default=100, help="in all (default 100)")
    parser.add_argument("--mode", default="edge", help="edge, oneshot, level or asyncio")
    parser.add_argument("--path", default="direct", help="direct or memorybio")
    parser.add_argument("--seed", type=int, help="run this one episode")
    parser.add_argument("--episode-megabytes", type=float, default=8)
    options = parser.parse_args()
    os.environ["EPLOOP_TLS"] = options.path
    if options.mode == "asyncio":
        make_loop = asyncio.SelectorEventLoop
    else:
        import eploop
        make_loop = eploop.loop_factory(mode=options.mode)
    seed = options.seed if options.seed is not None else time.time_ns()
    moved = episodes = 0
    while moved < options.megabytes * 1e6:
        try:
            moved += run_episode(make_loop, seed, options.episode_megabytes)
        except BaseException:
            print(f"\nseed {seed} failed; again with --seed {seed} --mode {options.mode} "
                  f"--path {options.path} --episode-megabytes {options.episode_megabytes}")
            raise
        episodes += 1
        print(f"\r{episodes} episodes, {moved / 1e6:.0f} MB", end="", flush=True)
        if options.seed is not None:
            break
        seed += 1
    print()


if __name__ == "__main__":
    main()
