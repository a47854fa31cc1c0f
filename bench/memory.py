"""What an idle connection, TCP or TLS, costs the server process."""

import resource
import socket
import ssl
import struct
import time
from contextlib import ExitStack
from functools import partial

from bench.measure import Metric, Sample, Settings, Workload
from bench.net import server_command
from bench.processes import Child, ChildFailed

METRICS = (
    Metric("bytes_per_connection", "bytes/connection", "less", 0),
    Metric("protocol_bytes", "protocol object, bytes", decimals=0),
)
# Connections that stay open while the base is read: the tables and arenas that come with the first
# connections are no cost of the later ones.
WARMUP_CONNECTIONS = 500
CONNECTIONS_PER_SOURCE = 8000
PACE = 500
TLS_CONNECTIONS = 2000      # a handshake each, and 40 times the memory
SPARE_DESCRIPTORS = 200
IP_BIND_ADDRESS_NO_PORT = 24
# Closing sends a reset: no TIME_WAIT is left to fill the port range of the next round.
RESET_ON_CLOSE = struct.pack("ii", 1, 0)


def raise_descriptor_limit(wanted: int) -> None:
    """Makes room for so many descriptors in this process.

    Raises:
        RuntimeError: The hard limit is lower and may not be raised.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= wanted:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(wanted, hard)))
    except (ValueError, OSError):
        raise RuntimeError(
            f"needs {wanted} descriptors, the limit is {hard} (ulimit -n)"
        ) from None


def _client_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class Clients:
    """A growing number of idle client connections, spread over several source addresses."""

    def __init__(self, server: Child, port: int, stack: ExitStack, *, tls: bool) -> None:
        self._context = _client_context() if tls else None
        self._server = server
        self._port = port
        self._stack = stack
        self._count = 0

    def grow(self, count: int) -> None:
        """Opens connections until there are `count`, and waits until the server has them all."""
        while self._count < count:
            self._open()
            if self._count % PACE == 0 or self._count == count:
                self._wait_for_server()

    def _open(self) -> None:
        sock = self._stack.enter_context(socket.socket())
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        sock.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
        sock.bind((f"127.0.0.{2 + self._count // CONNECTIONS_PER_SOURCE}", 0))
        sock.connect(("127.0.0.1", self._port))
        if self._context is not None:
            self._stack.enter_context(self._context.wrap_socket(sock))
        self._count += 1

    def _wait_for_server(self) -> None:
        deadline_s = time.monotonic() + 30
        while (seen := self._server.ask("usage")["connections"]) < self._count:
            if time.monotonic() > deadline_s:
                raise ChildFailed(f"the server has {seen} of {self._count} connections")
            time.sleep(0.01)


def measure(loop: str, settings: Settings, *, tls: bool) -> Sample:
    """Opens idle connections and divides the growth of the server by their number."""
    count = min(settings.idle_connections, TLS_CONNECTIONS) if tls else settings.idle_connections
    raise_descriptor_limit(count + WARMUP_CONNECTIONS + SPARE_DESCRIPTORS)
    command = server_command(loop, "idle", "127.0.0.1", settings, tls=tls)
    with Child(command) as server, ExitStack() as stack:
        listening = server.answer()
        clients = Clients(server, listening["address"][1], stack, tls=tls)
        clients.grow(WARMUP_CONNECTIONS)
        base_bytes = server.ask("memory")["anonymous_bytes"]
        clients.grow(WARMUP_CONNECTIONS + count)
        grown_bytes = server.ask("memory")["anonymous_bytes"] - base_bytes
    return {
        "bytes_per_connection": grown_bytes / count - listening["protocol_bytes"],
        "protocol_bytes": listening["protocol_bytes"],
    }


WORKLOADS = (
    Workload(
        "idle-tcp",
        "memory",
        "idle TCP connections: growth of the server process per connection, less the protocol",
        METRICS,
        partial(measure, tls=False),
    ),
    Workload(
        "idle-tls",
        "memory",
        "idle TLS connections: growth of the server process per connection, less the protocol",
        METRICS,
        partial(measure, tls=True),
    ),
)
