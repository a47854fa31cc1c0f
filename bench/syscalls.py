"""System calls per request, counted by strace."""

import tempfile
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path

from bench import loadgen
from bench.measure import Metric, Sample, Settings, Workload
from bench.net import check_same_congestion, server_command, target_of
from bench.processes import Child

METRICS = (Metric("total", "calls/req", "less", 2),)
SIZE_BYTES = 1024
FEW_REQUESTS = 200
# Calls that are rarer than this belong to start, garbage collection and the like.
NOTEWORTHY = 0.005


def parse_summary(text: str) -> Counter[str]:
    """Calls by name from the table that `strace -c` writes."""
    calls: Counter[str] = Counter()
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 5 and words[3].isdigit() and words[-1] != "total":
            calls[words[-1]] += int(words[3])
    return calls


def traced(app: str, loop: str, settings: Settings, requests: int) -> Counter[str]:
    """All system calls of a server process that answered so many requests."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        summary = Path(folder) / "summary"
        strace = ["strace", "-c", "-f", "-o", str(summary)]
        with Child(strace + server_command(loop, app, "127.0.0.1", settings)) as server:
            listening = server.answer()
            command = loadgen.command(
                target_of(listening), settings, connections=1, size_bytes=SIZE_BYTES
            )
            with Child([*command, "--requests", str(requests)]) as client:
                check_same_congestion(listening, client.answer())
                client.ask("go", 120)
        return parse_summary(summary.read_text())


def measure(app: str, loop: str, settings: Settings) -> Sample:
    """Traces a short and a long run; the difference is what the further requests took."""
    settings = replace(settings, warmup_s=0)
    few = traced(app, loop, settings, FEW_REQUESTS)
    many = traced(app, loop, settings, FEW_REQUESTS + settings.traced_requests)
    per_request = {
        name: (count - few[name]) / settings.traced_requests for name, count in many.most_common()
    }
    noteworthy = {name: n for name, n in per_request.items() if n >= NOTEWORTHY}
    return {"total": sum(noteworthy.values()), **noteworthy}


def _workload(name: str, app: str, summary: str) -> Workload:
    return Workload(
        name,
        "syscalls",
        f"system calls per request: {summary}, 1 KiB, 1 connection",
        METRICS,
        partial(measure, app),
        rounds_max=1,
        needs="strace",
    )


WORKLOADS = (
    _workload("syscalls-echo-1k", "echo", "Protocol echo"),
    _workload("syscalls-sock-echo-1k", "sock-echo", "sock_recv and sock_sendall echo"),
)
