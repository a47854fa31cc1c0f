"""Servers under load: requests per second, CPU time per request, latency, and what it took."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench import loadgen
from bench.measure import Metric, Sample, Settings, Workload
from bench.processes import Child, ChildFailed, python_module

METRICS = (
    Metric("requests_per_s", "requests/s", "more", 0),
    Metric("cpu_us", "CPU us/req", "less", 2),
    Metric("p50_us", "p50 us"),
    Metric("p99_us", "p99 us"),
    Metric("p999_us", "p99.9 us"),
    Metric("server_busy", "busy %", decimals=0),
    Metric("faults", "faults/req", decimals=3),
    Metric("epoll_ctl_calls", "epoll_ctl/req", decimals=3),
    Metric("would_blocks", "would-block/req", decimals=3),
    Metric("polls", "polls/req", decimals=3),
)
COUNTERS = ("epoll_ctl_calls", "would_blocks", "polls")


@dataclass(frozen=True, slots=True)
class Load:
    """One server program and the load it is put under."""

    app: str
    connections: int
    size_bytes: int
    unix: bool = False
    depth: int = 1
    tls: bool = False
    churns: bool = False
    udp: bool = False


@contextmanager
def socket_address(*, unix: bool) -> Iterator[str]:
    """An address for the server to bind: an IPv4 host, or a path in a folder of its own."""
    if not unix:
        yield "127.0.0.1"
        return
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        yield f"unix:{Path(folder) / 'socket'}"


def server_command(
    loop: str, app: str, address: str, settings: Settings, *, tls: bool = False, udp: bool = False
) -> list[str]:
    """The command line of a server process."""
    words = ["--loop", loop, "--app", app, "--address", address]
    if tls:
        words.append("--tls")
    if udp:
        words.append("--udp")
    if settings.congestion:
        words += ["--congestion", settings.congestion]
    if settings.server_cpu is not None:
        words += ["--cpu", str(settings.server_cpu)]
    return python_module("servers", *words)


def target_of(listening: dict[str, Any]) -> str:
    """Where the load generator finds a server that said it is listening."""
    address = listening["address"]
    return address if isinstance(address, str) else f"{address[0]}:{address[1]}"


def check_same_congestion(listening: dict[str, Any], warm: dict[str, Any]) -> None:
    """Raises unless both ends of the connection use the same congestion control."""
    if listening["congestion"] != warm["congestion"]:
        ours, theirs = listening["congestion"], warm["congestion"]
        raise ChildFailed(f"congestion control differs: server {ours}, client {theirs}")


def measure(load: Load, loop: str, settings: Settings) -> Sample:
    """Runs one server and one load generator; see `METRICS` for what comes out."""
    with socket_address(unix=load.unix) as address:
        server = Child(
            server_command(loop, load.app, address, settings, tls=load.tls, udp=load.udp)
        )
        with server:
            listening = server.answer()
            command = loadgen.command(
                target_of(listening),
                settings,
                connections=load.connections,
                size_bytes=load.size_bytes,
                depth=load.depth,
                tls=load.tls,
                churns=load.churns,
                udp=load.udp,
            )
            with Child([*command, "--seconds", str(settings.seconds)]) as client:
                check_same_congestion(listening, client.answer())
                before = server.ask("usage")
                done = client.ask("go", settings.seconds + 60)
                after = server.ask("usage")
    return _sample(done, before, after)


def _sample(done: dict[str, Any], before: dict[str, Any], after: dict[str, Any]) -> Sample:
    requests = done["requests"]
    cpu_us = (after["cpu_ns"] - before["cpu_ns"]) / 1000
    sample = {
        "requests": requests,
        "requests_per_s": requests / done["seconds"],
        "cpu_us": cpu_us / requests,
        "user_us": (after["user_s"] - before["user_s"]) * 1e6 / requests,
        "system_us": (after["system_s"] - before["system_s"]) * 1e6 / requests,
        "server_busy": cpu_us / done["seconds"] / 1e4,
        "faults": (after["minor_faults"] - before["minor_faults"]) / requests,
        **{key: done[key] for key in ("p50_us", "p99_us", "p999_us", "max_us")},
    }
    if before["statistics"]:
        for key in COUNTERS:
            sample[key] = (after["statistics"][key] - before["statistics"][key]) / requests
    return sample


def _workload(name: str, load: Load, summary: str) -> Workload:
    return Workload(name, "net", summary, METRICS, partial(measure, load),
                    needs="openssl" if load.tls else "cc")


WORKLOADS = (
    _workload("tcp-echo-1k-c1", Load("echo", 1, 1024), "Protocol echo, 1 KiB, 1 connection"),
    _workload("tcp-echo-1k-c50", Load("echo", 50, 1024), "Protocol echo, 1 KiB, 50 connections"),
    _workload("tcp-echo-64k", Load("echo", 10, 65536), "Protocol echo, 64 KiB, 10 connections"),
    _workload(
        "buffered-echo-1k",
        Load("buffered-echo", 50, 1024),
        "BufferedProtocol echo, 1 KiB, 50 connections",
    ),
    _workload(
        "streams-readline-1k",
        Load("readline", 50, 1024),
        "StreamReader.readline and StreamWriter.drain, 1 KiB lines, 50 connections",
    ),
    _workload(
        "streams-readexactly-1k",
        Load("readexactly", 50, 1024),
        "StreamReader.readexactly and StreamWriter.write, 1 KiB, 50 connections",
    ),
    _workload(
        "streams-drain-1k",
        Load("drain", 50, 1024),
        "StreamReader.read, StreamWriter.write and drain, 1 KiB, 50 connections",
    ),
    _workload(
        "sock-recv-into-1k",
        Load("sock-into", 50, 1024),
        "sock_recv_into and sock_sendall echo, 1 KiB, 50 connections",
    ),
    _workload(
        "udp-echo-256",
        Load("udp-echo", 50, 256, udp=True),
        "Datagram protocol echo, 256 B, 50 clients",
    ),
    _workload(
        "sock-echo-1k-c1",
        Load("sock-echo", 1, 1024),
        "sock_recv and sock_sendall echo, 1 KiB, 1 connection",
    ),
    _workload(
        "sock-echo-1k-c50",
        Load("sock-echo", 50, 1024),
        "sock_recv and sock_sendall echo, 1 KiB, 50 connections",
    ),
    _workload("tls-1k-c10", Load("echo", 10, 1024, tls=True), "TLS echo, 1 KiB, 10 connections"),
    _workload("tls-1k-c100", Load("echo", 100, 1024, tls=True), "TLS echo, 1 KiB, 100 connections"),
    _workload("tls-64k-c10", Load("echo", 10, 65536, tls=True), "TLS echo, 64 KiB, 10 connections"),
    _workload(
        "tls-64k-c100", Load("echo", 100, 65536, tls=True), "TLS echo, 64 KiB, 100 connections"
    ),
    _workload(
        "tls-readline-1k",
        Load("readline", 10, 1024, tls=True),
        "StreamReader.readline and StreamWriter.drain over TLS, 1 KiB lines, 10 connections",
    ),
    _workload(
        "tls-churn",
        Load("echo", 1, 64, tls=True, churns=True),
        "TLS connections one after the other: handshake, 64 B there and back, goodbye",
    ),
    _workload(
        "tcp-churn",
        Load("echo", 1, 64, churns=True),
        "TCP connections one after the other: 64 B there and back, end of stream",
    ),
    _workload(
        "unix-echo-1k",
        Load("echo", 50, 1024, unix=True),
        "Protocol echo over a unix socket, 1 KiB, 50 connections",
    ),
)
