"""The programs under test: ordinary asyncio servers that know nothing of the loop they run on."""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from functools import partial

# Room for every connection of a burst; asyncio also accepts that many per turn.
BACKLOG = 4096


class Echo(asyncio.Protocol):
    """Sends back what it receives."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


class BufferedEcho(asyncio.BufferedProtocol):
    """Sends back what it receives into a buffer of its own."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        self.view = memoryview(bytearray(64 * 1024))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.view

    def buffer_updated(self, nbytes: int) -> None:
        # A copy: the loop may keep what it cannot send at once, and the buffer is filled again.
        self.transport.write(bytes(self.view[:nbytes]))


class Idle(asyncio.Protocol):
    """Does nothing with its connection and holds nothing of it."""

    __slots__ = ()
    connections = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        Idle.connections += 1

    def connection_lost(self, exc: Exception | None) -> None:
        Idle.connections -= 1


async def echo_lines(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Sends back each line it reads, until the peer ends."""
    while line := await reader.readline():
        writer.write(line)
        await writer.drain()
    writer.close()


async def echo_exactly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Sends back each KiB it reads, until the peer ends."""
    try:
        while True:
            writer.write(await reader.readexactly(1024))
    except asyncio.IncompleteReadError:
        writer.close()


async def echo_and_drain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Sends back what it reads and waits for room, until the peer ends."""
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


class DatagramEcho(asyncio.DatagramProtocol):
    """Sends back each datagram."""

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self.transport.sendto(data, addr)


class SockEcho:
    """Sends back what it receives, by the loop's operations on plain sockets."""

    def __init__(self, sock: socket.socket) -> None:
        sock.listen(BACKLOG)
        sock.setblocking(False)
        self._listening = sock
        self._tasks = {asyncio.create_task(self._accept())}

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            connection, _ = await loop.sock_accept(self._listening)
            task = asyncio.create_task(self._echo(connection))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _echo(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        if connection.family == socket.AF_INET:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection:
            while data := await loop.sock_recv(connection, 65536):
                await loop.sock_sendall(connection, data)

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._listening.close()


class SockIntoEcho(SockEcho):
    """The same, into a buffer of its own."""

    async def _echo(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        buffer = memoryview(bytearray(65536))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection:
            while size := await loop.sock_recv_into(connection, buffer):
                await loop.sock_sendall(connection, buffer[:size])


async def _serve_sock(
    server: type[SockEcho], sock: socket.socket, context: ssl.SSLContext | None
) -> SockEcho:
    if context is not None:
        raise ValueError("plain sockets have no TLS")
    return server(sock)


async def _serve_datagrams(
    sock: socket.socket, context: ssl.SSLContext | None
) -> asyncio.DatagramTransport:
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(DatagramEcho, sock=sock)
    return transport


async def _serve_protocol(
    factory: Callable[[], asyncio.BaseProtocol],
    sock: socket.socket,
    context: ssl.SSLContext | None,
) -> asyncio.Server:
    loop = asyncio.get_running_loop()
    if sock.family == socket.AF_UNIX:
        return await loop.create_unix_server(factory, sock=sock, backlog=BACKLOG, ssl=context)
    return await loop.create_server(factory, sock=sock, backlog=BACKLOG, ssl=context)


async def _serve_streams(
    handle: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    sock: socket.socket,
    context: ssl.SSLContext | None,
) -> asyncio.Server:
    return await asyncio.start_server(handle, sock=sock, backlog=BACKLOG, ssl=context)


Closable = asyncio.Server | SockEcho | asyncio.DatagramTransport
Serve = Callable[[socket.socket, ssl.SSLContext | None], Awaitable[Closable]]

APPS: dict[str, Serve] = {
    "echo": partial(_serve_protocol, Echo),
    "buffered-echo": partial(_serve_protocol, BufferedEcho),
    "readline": partial(_serve_streams, echo_lines),
    "readexactly": partial(_serve_streams, echo_exactly),
    "drain": partial(_serve_streams, echo_and_drain),
    "sock-echo": partial(_serve_sock, SockEcho),
    "sock-into": partial(_serve_sock, SockIntoEcho),
    "udp-echo": _serve_datagrams,
    "idle": partial(_serve_protocol, Idle),
}
