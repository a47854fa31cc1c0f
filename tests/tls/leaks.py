"""TLS connections that come and go: nothing of them stays.

    python tests/tls/leaks.py --connections 10000 [--mode edge] [--path direct]

Client and server are on one loop. For each way to end, so many connections open, talk and end,
twenty at a time; the first tenth is the warm-up. Then the process must hold no more memory than
after the warm-up (but for the allocator's slack), and no descriptor.
"""
import argparse
import asyncio
import ctypes
import gc
import os
import socket
import ssl
import struct
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from support.tls import client_context, server_context

AT_ONCE = 20
SLACK_BYTES = 2 << 20      # where the fragments of a heap lie differs by a MiB
PAGE_BYTES = os.sysconf("SC_PAGESIZE")
RESET = struct.pack("ii", 1, 0)


class Talk(asyncio.Protocol):
    """Echoes on the server's side; the client waits for its answer."""

    def __init__(self):
        loop = asyncio.get_running_loop()
        self.answered, self.lost = loop.create_future(), loop.create_future()

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        if not self.answered.done():
            self.answered.set_result(data)
        if self.transport.get_extra_info("ssl_object").server_side:
            self.transport.write(data)

    def connection_lost(self, exc):
        self.lost.set_result(exc)


class Ways:
    """How a connection can go; each a coroutine that returns when both ends are gone."""

    def __init__(self, loop, server, stranger):
        self.loop, self.server, self.port = loop, server, server.sockets[0].getsockname()[1]
        self.context, self.stranger = client_context(), stranger

    async def _talk(self):
        transport, protocol = await self.loop.create_connection(
            Talk, "127.0.0.1", self.port, ssl=self.context, server_hostname="localhost")
        transport.write(b"hello")
        await protocol.answered
        return transport, protocol

    async def close(self):
        transport, protocol = await self._talk()
        transport.close()
        await protocol.lost

    async def abort(self):
        transport, protocol = await self._talk()
        transport.abort()
        await protocol.lost

    async def reset(self):
        transport, protocol = await self._talk()
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        transport.abort()
        await protocol.lost

    async def handshake_failure(self):
        try:
            await self.loop.create_connection(
                Talk, "127.0.0.1", self.port, ssl=self.stranger, server_hostname="localhost")
        except ssl.SSLError:
            return
        raise AssertionError("the handshake should fail")

    async def timeout(self):
        """The server gives up on a client that says nothing."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()


WAYS = ("close", "abort", "reset", "handshake_failure", "timeout")


def memory_bytes():
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * PAGE_BYTES


def descriptors():
    return len(os.listdir("/proc/self/fd"))


async def repeat(way, times):
    async def one_after_the_other(count):
        for _ in range(count):
            await way()

    await asyncio.gather(*(one_after_the_other(times // AT_ONCE) for _ in range(AT_ONCE)))
    await asyncio.sleep(0.1)    # the server's ends


async def check(name, connections):
    """Raises AssertionError if something stayed; returns the growth in bytes."""
    loop = asyncio.get_running_loop()
    failed = []
    loop.set_exception_handler(lambda loop, context: failed.append(context))
    server = await loop.create_server(
        Talk, "127.0.0.1", 0, ssl=server_context(),
        ssl_handshake_timeout=0.05 if name == "timeout" else 10)
    way = getattr(Ways(loop, server, ssl.create_default_context()), name)
    await repeat(way, max(AT_ONCE, connections // 10))
    before = memory_bytes(), descriptors()
    await repeat(way, connections)
    grown = memory_bytes() - before[0]
    assert descriptors() == before[1], f"{descriptors() - before[1]} descriptors stayed"
    assert grown < SLACK_BYTES, f"{grown} bytes stayed of {connections} connections"
    assert not failed, failed[0]
    server.close()
    await server.wait_closed()
    return grown


def run_check(make_loop, name, connections):
    with warnings.catch_warnings():
        warnings.simplefilter("error")      # ResourceWarning: in a destructor, hence printed
        with asyncio.Runner(loop_factory=make_loop) as runner:
            return runner.run(check(name, connections))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--connections", type=int, default=10_000, help="for each way to end")
    parser.add_argument("--mode", default="edge", help="edge, oneshot, level or asyncio")
    parser.add_argument("--path", default="direct", help="direct or memorybio")
    options = parser.parse_args()
    os.environ["EPLOOP_TLS"] = options.path
    if options.mode == "asyncio":
        make_loop = asyncio.SelectorEventLoop
    else:
        import eploop
        make_loop = eploop.loop_factory(mode=options.mode)
    for name in WAYS:
        grown = run_check(make_loop, name, options.connections)
        print(f"{name}: {options.connections} connections, {grown / 1024:+.0f} KiB", flush=True)


if __name__ == "__main__":
    main()
