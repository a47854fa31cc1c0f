"""Runs the servers on the loops in short turns and takes the medians."""

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import median
from typing import Any

from eploop.demo.driver import DemoFailed, Driver

SERVER_NAMES = ("echo", "http")
ROUNDS = 5
TURN_MIN_S = 0.1
# Each turn begins with so much unmeasured load: new connections, cold caches.
WARMUP_PART = 0.2
START_S = 20.0
REPORT_S = 5.0
EXIT_S = 3.0
# Debug modes of the caller's shell would slow some loops more than others.
UNWANTED_VARIABLES = ("PYTHONASYNCIODEBUG", "PYTHONDEVMODE")


@dataclass(frozen=True, slots=True)
class Figures:
    """What one server did in one turn, or the medians of all its turns."""

    requests_per_s: float
    cpu_us: float
    p99_ms: float
    epoll_ctl_calls: float | None
    server_busy: float


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table."""

    server: str
    loop: str
    figures: Figures


class Server:
    """A server process, as a context manager that never leaves it behind."""

    def __init__(self, name: str, loop: str, cpu: int | None) -> None:
        self.name = name
        self.loop = loop
        command = [sys.executable, "-m", "eploop.demo.child", loop, name]
        if cpu is not None:
            command.append(str(cpu))
        # A session of its own: Ctrl-C reaches only the demo, which then ends its servers in order.
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env=_environment(),
            start_new_session=True,
        )
        self.port = 0

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._process.stdin.close()
        try:
            status = self._process.wait(EXIT_S)
        except BaseException as exc:
            self._process.kill()
            self._process.wait()
            if not isinstance(exc, subprocess.TimeoutExpired):
                raise
            status = f"none within {EXIT_S:.0f} s"
        finally:
            self._process.stdout.close()
        if status != 0 and exc_info[0] is None:
            raise DemoFailed(f"{self}: exit status {status}")

    def __str__(self) -> str:
        return f"{self.name} server on {self.loop}"

    def wait_until_ready(self) -> None:
        """Waits until the server listens."""
        self.port = self._answer(START_S)["port"]

    def report(self) -> dict[str, Any]:
        """What the process has used so far.

        Raises:
            DemoFailed: The process has ended, or an error in it went unhandled.
        """
        try:
            self._process.stdin.write(b"\n")
        except BrokenPipeError:
            raise DemoFailed(f"{self} ended by itself") from None
        report = self._answer(REPORT_S)
        if report["errors"]:
            raise DemoFailed(f"{self}: {report['errors']} unhandled errors, see above")
        return report

    def _answer(self, timeout_s: float) -> dict[str, Any]:
        line = b""
        deadline_s = time.monotonic() + timeout_s
        while not line.endswith(b"\n"):
            wait_s = max(0.0, deadline_s - time.monotonic())
            if not select.select([self._process.stdout], [], [], wait_s)[0]:
                raise DemoFailed(f"{self} does not answer")
            data = self._process.stdout.read(4096)
            if not data:
                raise DemoFailed(f"{self} ended with exit status {self._process.wait()}")
            line += data
        return json.loads(line)


def _environment() -> dict[str, str]:
    environment = {k: v for k, v in os.environ.items() if k not in UNWANTED_VARIABLES}
    # The children must find the same package, wherever the demo was started from.
    folders = [str(Path(__file__).resolve().parents[2]), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, folders))
    return environment


@contextmanager
def separate_cpus() -> Iterator[int | None]:
    """Keeps this process on one CPU and yields another for the servers, if there are two."""
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        yield None
        return
    os.sched_setaffinity(0, {allowed[1]})
    try:
        yield allowed[0]
    finally:
        os.sched_setaffinity(0, allowed)


def compare(
    loops: Sequence[str],
    connections: int,
    seconds: float,
    on_turn: Callable[[str, str], None],
) -> list[Line]:
    """Drives both servers on all loops; the loops take turns, so noise hits them equally.

    Args:
        seconds: How long each server is driven on each loop, all turns together.
        on_turn: Called before each turn with where the work is, and a detail.

    Raises:
        DemoFailed: A server failed or answered wrongly.
        OSError: The system has no room for another process or descriptor.
    """
    rounds = max(1, min(ROUNDS, int(seconds / TURN_MIN_S)))
    lines = []
    with separate_cpus() as server_cpu:
        for name in SERVER_NAMES:
            on_turn(f"{name} server", "starting")
            with ExitStack() as stack:
                servers = [stack.enter_context(Server(name, x, server_cpu)) for x in loops]
                for server in servers:
                    server.wait_until_ready()
                turns: dict[str, list[Figures]] = {loop: [] for loop in loops}
                for number in range(1, rounds + 1):
                    for server in servers:
                        on_turn(f"{name} server, round {number} of {rounds}", server.loop)
                        spins = server_cpu is not None
                        figures = _take_turn(server, connections, seconds / rounds, spins)
                        turns[server.loop].append(figures)
            lines += [Line(name, loop, _medians(turns[loop])) for loop in loops]
    return lines


def _take_turn(server: Server, connections: int, seconds: float, spins: bool) -> Figures:
    try:
        with Driver(server.name, server.port, connections, spins=spins) as driver:
            driver.drive(seconds * WARMUP_PART)
            before = server.report()
            load = driver.drive(seconds * (1 - WARMUP_PART))
            after = server.report()
    except (DemoFailed, ConnectionError, TimeoutError) as exc:
        server.report()  # If the server has failed, that says more.
        raise DemoFailed(f"{server}: {exc}") from exc
    requests = len(load.latencies_ns)
    cpu_us = (after["cpu_ns"] - before["cpu_ns"]) / 1000
    calls = after["epoll_ctl_calls"]
    return Figures(
        requests_per_s=requests / load.seconds,
        cpu_us=cpu_us / requests,
        p99_ms=sorted(load.latencies_ns)[requests * 99 // 100] / 1e6,
        epoll_ctl_calls=None if calls is None else (calls - before["epoll_ctl_calls"]) / requests,
        server_busy=cpu_us / 1e6 / load.seconds,
    )


def _medians(turns: list[Figures]) -> Figures:
    def middle(name: str) -> Any:
        values = [getattr(turn, name) for turn in turns]
        return None if None in values else median(values)

    return Figures(*(middle(field.name) for field in fields(Figures)))
