"""Where the figures were made: the conditions a report has to name."""

import os
import platform
import socket
import time
from collections.abc import Sequence
from pathlib import Path

from bench import loops
from bench.measure import Settings

# Neither paces nor probes: the same work for every byte.
PREFERRED_CONGESTION = ("reno", "cubic")


def pick_congestion() -> str | None:
    """A congestion control without pacing that this user may set; None if there is none."""
    with socket.socket() as sock:
        for name in PREFERRED_CONGESTION:
            try:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
            except OSError:
                continue
            return name
    return None


def pick_cpus() -> tuple[int | None, int | None]:
    """The first two CPUs this process may use, for server and client; None, None if it has one."""
    allowed = sorted(os.sched_getaffinity(0))
    return (allowed[0], allowed[1]) if len(allowed) > 1 else (None, None)


def _system_congestion() -> str:
    return Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def describe(settings: Settings, names: Sequence[str], rounds: int) -> dict[str, str]:
    """The conditions, in the order in which the report prints them."""
    pinned = settings.server_cpu is not None
    packages = [f"{package} {version}" for package, version in loops.versions(names).items()]
    return {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "kernel": platform.release(),
        "processor": f"{_cpu_model()}, {os.cpu_count()} CPUs",
        "load before": " ".join(f"{load:.2f}" for load in os.getloadavg()),
        "python": f"{platform.python_version()}, {platform.python_compiler()}",
        "libc": " ".join(platform.libc_ver()),
        "packages": ", ".join(packages) or "none",
        "pinning": f"server CPU {settings.server_cpu}, client CPU {settings.client_cpu}"
        if pinned
        else "none: only one CPU",
        "congestion control": f"{settings.congestion} on both sides, set before listen/connect"
        if settings.congestion
        else f"{_system_congestion()} (the system's)",
        "client": "closed loop, " + ("spins" if settings.client_spins else "sleeps"),
        "rounds": f"{rounds}, interleaved, {settings.seconds:g} s each",
    }
