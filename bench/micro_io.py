"""Micro workloads with descriptors: readers, sockets at both ends of one loop, names, children."""

import asyncio
import socket
from collections.abc import Callable
from functools import partial

Run = Callable[[asyncio.AbstractEventLoop, int], None]

MESSAGE = b"x" * 64
HOST = "127.0.0.1"


def _socket_pair() -> tuple[socket.socket, socket.socket]:
    near, far = socket.socketpair()
    near.setblocking(False)
    far.setblocking(False)
    return near, far


def add_remove_reader(loop: asyncio.AbstractEventLoop, ops: int) -> None:
    """A reader added and removed."""
    near, far = _socket_pair()
    with near, far:
        for _ in range(ops):
            loop.add_reader(near, print)
            loop.remove_reader(near)


def reader_events(loop: asyncio.AbstractEventLoop, ops: int) -> None:
    """A byte sent to oneself, and the reader called."""
    near, far = _socket_pair()

    def on_readable() -> None:
        nonlocal ops
        near.recv(1)
        ops -= 1
        if ops > 0:
            far.send(b"x")
        else:
            loop.stop()

    with near, far:
        loop.add_reader(near, on_readable)
        far.send(b"x")
        loop.run_forever()
        loop.remove_reader(near)


class _Bounce(asyncio.Protocol):
    """Sends back what comes, so many times."""

    def __init__(self, loop: asyncio.AbstractEventLoop, times: int) -> None:
        self.times = times
        self.done = loop.create_future()

    def connection_made(self, transport: asyncio.Transport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.times -= 1
        if self.times == 0:
            self.done.set_result(None)
        else:
            self.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        pass


def pair_protocol(loop: asyncio.AbstractEventLoop, ops: int) -> None:
    """64 B between two protocols on one loop, there and back."""

    async def main() -> None:
        near, far = _socket_pair()
        first, second = _Bounce(loop, ops), _Bounce(loop, ops + 1)
        await loop.create_unix_connection(lambda: first, sock=near)
        await loop.create_unix_connection(lambda: second, sock=far)
        first.transport.write(MESSAGE)
        await first.done
        first.transport.abort()
        second.transport.abort()
        await asyncio.sleep(0)

    loop.run_until_complete(main())


def pair_sock(loop: asyncio.AbstractEventLoop, ops: int) -> None:
    """64 B by sock_sendall and sock_recv between two tasks, there and back."""

    async def answer(far: socket.socket) -> None:
        for _ in range(ops):
            await loop.sock_sendall(far, await loop.sock_recv(far, 100))

    async def main() -> None:
        near, far = _socket_pair()
        with near, far:
            answering = loop.create_task(answer(far))
            for _ in range(ops):
                await loop.sock_sendall(near, MESSAGE)
                await loop.sock_recv(near, 100)
            await answering

    loop.run_until_complete(main())


def pair_streams(loop: asyncio.AbstractEventLoop, ops: int) -> None:
    """64 B by StreamReader and StreamWriter between two tasks, there and back."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(ops):
            writer.write(await reader.readexactly(len(MESSAGE)))
            await writer.drain()

    async def main() -> None:
        near, far = _socket_pair()
        reader, writer = await asyncio.open_unix_connection(sock=near)
        far_reader, far_writer = await asyncio.open_unix_connection(sock=far)
        answering = loop.create_task(answer(far_reader, far_writer))
        for _ in range(ops):
            writer.write(MESSAGE)
            await writer.drain()
            await reader.readexactly(len(MESSAGE))
        await answering
        for end in (writer, far_writer):
            end.close()
            await end.wait_closed()

    loop.run_until_complete(main())


def connect_churn(loop: asyncio.AbstractEventLoop, ops: int) -> None:
    """A TCP connection to a server on the same loop: made, 64 B there and back, closed."""

    class Answer(asyncio.Protocol):
        def connection_made(self, transport: asyncio.Transport) -> None:
            self.transport = transport

        def data_received(self, data: bytes) -> None:
            self.transport.write(data)

    async def main() -> None:
        server = await loop.create_server(Answer, HOST, 0)
        port = server.sockets[0].getsockname()[1]
        for _ in range(ops):
            transport, protocol = await loop.create_connection(
                partial(_Bounce, loop, 1), HOST, port
            )
            transport.write(MESSAGE)
            await protocol.done
            transport.close()
        await asyncio.sleep(0.01)
        server.close()

    loop.run_until_complete(main())


def getaddrinfo(loop: asyncio.AbstractEventLoop, ops: int) -> None:
    """getaddrinfo of an address that needs no resolver."""

    async def main() -> None:
        for _ in range(ops):
            await loop.getaddrinfo(HOST, 80, type=socket.SOCK_STREAM)

    loop.run_until_complete(main())


def run_in_executor(loop: asyncio.AbstractEventLoop, ops: int) -> None:
    """A function that does nothing, in a thread."""

    async def main() -> None:
        for _ in range(ops):
            await loop.run_in_executor(None, int)

    loop.run_until_complete(main())


def spawn(loop: asyncio.AbstractEventLoop, ops: int) -> None:
    """A child process started and waited for; its own CPU time is not counted."""

    async def main() -> None:
        for _ in range(ops):
            child = await asyncio.create_subprocess_exec("true")
            await child.wait()

    loop.run_until_complete(main())


def spawn_pipes(loop: asyncio.AbstractEventLoop, ops: int) -> None:
    """A child process with three pipes, and communicate()."""
    pipe = asyncio.subprocess.PIPE

    async def main() -> None:
        for _ in range(ops):
            child = await asyncio.create_subprocess_exec(
                "cat", stdin=pipe, stdout=pipe, stderr=pipe
            )
            await child.communicate(MESSAGE)

    loop.run_until_complete(main())


RUNS: dict[str, tuple[Run, str]] = {
    "add-remove-reader": (add_remove_reader, "add_reader and remove_reader"),
    "reader-events": (reader_events, "a byte to oneself and the reader's call"),
    "pair-protocol": (pair_protocol, "socket pair on one loop, protocols, 64 B there and back"),
    "pair-sock": (pair_sock, "socket pair on one loop, sock_*, 64 B there and back"),
    "pair-streams": (pair_streams, "socket pair on one loop, streams, 64 B there and back"),
    "connect-churn": (connect_churn, "connect, 64 B there and back, close, on one loop"),
    "getaddrinfo": (getaddrinfo, "getaddrinfo of a literal address"),
    "run-in-executor": (run_in_executor, "run_in_executor of a function that does nothing"),
    "spawn-true": (spawn, "create_subprocess_exec of `true`, and wait"),
    "spawn-pipes": (spawn_pipes, "create_subprocess_exec of `cat` with pipes, and communicate"),
}
