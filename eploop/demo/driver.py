"""Keeps a server busy over many connections and checks every answer: raw sockets and one epoll."""

import select
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

from eploop.demo.http_server import BODY

STALL_S = 10.0
RECEIVE_BYTES = 64 * 1024
MESSAGE_BYTES = 1024
HTTP_REQUEST = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: eploop-demo\r\n\r\n"
HTTP_OK = b"HTTP/1.1 200 OK\r\n"
HTTP_LENGTH = b"\r\nContent-Length: %d\r\n" % len(BODY)

# Whether the bytes received are the whole answer to the request.
IsAnswer = Callable[[bytes, bytes], bool]


class DemoFailed(Exception):
    """A server, or what it answered, is not as it should be."""


@dataclass(frozen=True, slots=True)
class Load:
    """What one slice of time brought: how long it was, and the latency of each answer."""

    seconds: float
    latencies_ns: list[int]


class Connection:
    """One connection with at most one request under way."""

    __slots__ = ("fd", "received", "request", "sock", "started_ns")

    def __init__(self, port: int, request: bytes) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), STALL_S)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.setblocking(False)
        self.fd = self.sock.fileno()
        self.request = request
        self.received = b""
        self.started_ns = 0

    def ask(self, now_ns: int) -> None:
        """Sends the request; the last one has been answered, so the buffer has room for it."""
        self.started_ns = now_ns
        if self.sock.send(self.request) != len(self.request):
            raise DemoFailed("the socket took only a part of a request")


def is_echo(request: bytes, received: bytes) -> bool:
    """Checks an answer of the echo server."""
    if len(received) < len(request):
        if not request.startswith(received):
            raise DemoFailed("wrong answer: the echo is not what was sent")
        return False
    if received != request:
        raise DemoFailed("wrong answer: the echo is not what was sent")
    return True


def is_greeting(request: bytes, received: bytes) -> bool:
    """Checks an answer of the HTTP server."""
    head, separator, body = received.partition(b"\r\n\r\n")
    if not separator or len(body) < len(BODY):
        return False
    if body != BODY or not head.startswith(HTTP_OK) or HTTP_LENGTH not in head + b"\r\n":
        raise DemoFailed(f"wrong answer: {received[:200]!r}")
    return True


def _echo_request(number: int) -> bytes:
    return (b"%07d " % number) * (MESSAGE_BYTES // 8)


class Driver:
    """A number of connections to one server, as a context manager."""

    def __init__(self, server_name: str, port: int, connections: int, *, spins: bool) -> None:
        self._is_answer: IsAnswer = is_echo if server_name == "echo" else is_greeting
        # With a CPU of its own it spins: waking a sleeping client is charged to the server.
        self._wait_s = 0.0 if spins else STALL_S
        self._epoll = select.epoll()
        self._by_fd: dict[int, Connection] = {}
        try:
            for number in range(connections):
                request = _echo_request(number) if server_name == "echo" else HTTP_REQUEST
                connection = Connection(port, request)
                self._by_fd[connection.fd] = connection
                self._epoll.register(connection.fd, select.EPOLLIN)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Driver":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes all connections."""
        for connection in self._by_fd.values():
            connection.sock.close()
        self._epoll.close()

    def drive(self, seconds: float) -> Load:
        """Sends requests for so long, and returns when the last answer is in.

        Raises:
            DemoFailed: An answer is wrong, or none comes.
        """
        latencies_ns: list[int] = []
        begin_ns = now_ns = heard_ns = time.perf_counter_ns()
        end_ns = begin_ns + round(seconds * 1e9)
        waiting = len(self._by_fd)
        for connection in self._by_fd.values():
            connection.ask(now_ns)
        while waiting:
            events = self._epoll.poll(self._wait_s)
            now_ns = time.perf_counter_ns()
            if events:
                heard_ns = now_ns
            elif now_ns - heard_ns >= STALL_S * 1e9:
                raise DemoFailed(f"no answer for {STALL_S:.0f} s")
            for fd, _ in events:
                connection = self._by_fd[fd]
                if not self._receive(connection):
                    continue
                now_ns = time.perf_counter_ns()
                latencies_ns.append(now_ns - connection.started_ns)
                if now_ns < end_ns:
                    connection.ask(now_ns)
                else:
                    waiting -= 1
        return Load((now_ns - begin_ns) / 1e9, latencies_ns)

    def _receive(self, connection: Connection) -> bool:
        data = connection.sock.recv(RECEIVE_BYTES)
        if not data:
            raise DemoFailed("the server closed a connection")
        received = connection.received + data if connection.received else data
        complete = self._is_answer(connection.request, received)
        connection.received = b"" if complete else received
        return complete
