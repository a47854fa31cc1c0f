"""The server process: one program of `apps` on one loop, with a control pipe on stdin and stdout.

It prints one line of JSON when it listens and one for each word it is sent: `usage` (what the
process has used so far), `memory` (the same with its size, after giving back all it can). The end
of stdin is the order to leave. `add_reader` watches the control pipe, so it costs nothing while
silent.
"""

import argparse
import asyncio
import ctypes
import dataclasses
import gc
import json
import os
import resource
import socket
import ssl
import sys
import time
from pathlib import Path
from typing import Any

from bench.apps import APPS, Idle
from bench.loops import CONTENDERS, make_loop
from bench.processes import ROOT

MALLOC_SETTLE_BYTES = 16 << 20
CERTIFICATES = ROOT / "tests" / "certs"


def settle_malloc() -> None:
    """Lets glibc take large blocks from its heap, as it does in a process that has run for a while.

    mallopt(3), M_MMAP_THRESHOLD: blocks of 128 KiB and more are mapped and unmapped, with page
    faults for each, until the first one of that size has been freed. When that happens depends on
    the loop, so it would be measured as a difference between loops.
    """
    bytearray(MALLOC_SETTLE_BYTES)


def anonymous_bytes() -> int:
    """Resident memory of this process that is not file-backed.

    smaps_rollup walks the page tables; the counters in statm are kept per CPU and lag behind.
    """
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("Anonymous:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("no Anonymous line in /proc/self/smaps_rollup")


def give_back_memory() -> None:
    """Collects garbage and returns the free part of the heap to the system."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def usage(loop: asyncio.AbstractEventLoop) -> dict[str, Any]:
    """CPU time, page faults and the loop's own counters since the process began."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    read_statistics = getattr(loop, "statistics", None)
    return {
        "cpu_ns": time.process_time_ns(),
        "loop_thread_cpu_ns": time.thread_time_ns(),
        "user_s": used.ru_utime,
        "system_s": used.ru_stime,
        "minor_faults": used.ru_minflt,
        "connections": Idle.connections,
        "statistics": dataclasses.asdict(read_statistics()) if read_statistics else None,
    }


def bound_socket(address: str, congestion: str | None, *, udp: bool) -> socket.socket:
    """A bound socket, not yet listening, for `unix:PATH` or an IPv4 host (any free port)."""
    if address.startswith("unix:"):
        sock = socket.socket(socket.AF_UNIX)
        sock.bind(address.removeprefix("unix:"))
        return sock
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM if udp else socket.SOCK_STREAM)
    if congestion and not udp:
        # Before listen(): accepted sockets inherit it. Switching a connection that began under
        # BBR leaves it paced.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion.encode())
    sock.bind((address, 0))
    return sock


def _congestion_of(sock: socket.socket) -> str:
    if sock.family == socket.AF_UNIX or sock.type == socket.SOCK_DGRAM:
        return ""
    name = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
    return name.split(b"\0", 1)[0].decode()


class Control:
    """Answers the harness."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.left = asyncio.Event()
        self._loop = loop
        loop.add_reader(sys.stdin.fileno(), self._on_readable)

    def close(self) -> None:
        """Stops listening to the harness."""
        self._loop.remove_reader(sys.stdin.fileno())

    def say(self, answer: dict[str, Any]) -> None:
        """Writes one line of JSON."""
        os.write(sys.stdout.fileno(), json.dumps(answer).encode() + b"\n")

    def _on_readable(self) -> None:
        words = os.read(sys.stdin.fileno(), 4096)
        if not words:
            self.left.set()
        for word in words.split():
            if word == b"memory":
                give_back_memory()
                self.say({**usage(self._loop), "anonymous_bytes": anonymous_bytes()})
            else:
                self.say(usage(self._loop))


def tls_context() -> ssl.SSLContext:
    """A server's context, as most programs make it."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(CERTIFICATES / "server.pem", CERTIFICATES / "server.key")
    return context


async def serve(
    app: str, address: str, congestion: str | None, *, tls: bool, udp: bool
) -> None:
    """Serves until the harness closes the control pipe."""
    loop = asyncio.get_running_loop()
    sock = bound_socket(address, congestion, udp=udp)
    server = await APPS[app](sock, tls_context() if tls else None)
    control = Control(loop)
    control.say(
        {
            "address": address if sock.family == socket.AF_UNIX else list(sock.getsockname()),
            "congestion": _congestion_of(sock),
            "protocol_bytes": sys.getsizeof(Idle()),
        }
    )
    await control.left.wait()
    control.close()
    server.close()


def main(argv: list[str] | None = None) -> None:
    """Runs the server process."""
    parser = argparse.ArgumentParser(prog="python -m bench.servers", description=__doc__)
    parser.add_argument("--loop", required=True, choices=CONTENDERS)
    parser.add_argument("--app", required=True, choices=APPS)
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("--congestion")
    parser.add_argument("--cpu", type=int)
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--udp", action="store_true")
    options = parser.parse_args(argv)
    if options.cpu is not None:
        os.sched_setaffinity(0, {options.cpu})
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    settle_malloc()
    with asyncio.Runner(loop_factory=lambda: make_loop(options.loop)) as runner:
        runner.run(
            serve(
                options.app,
                options.address,
                options.congestion,
                tls=options.tls,
                udp=options.udp,
            )
        )


if __name__ == "__main__":
    main()
