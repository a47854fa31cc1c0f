"""What the loop itself costs: CPU time per callback, task switch, timer and wake-up.

Run as a module this is the child process: one workload on one loop, one line of JSON.
"""

import argparse
import asyncio
import json
import os
import threading
import time
from collections.abc import Callable
from functools import partial

from bench import micro_io, micro_tasks
from bench.loops import CONTENDERS, make_loop
from bench.measure import Metric, Sample, Settings, Workload
from bench.processes import Child, python_module

METRICS = (
    Metric("cpu_ns", "CPU ns/op", "less", 0),
    Metric("ops_per_s", "ops/s", decimals=0),
)
BATCH = 1000
# A producer waits for its callbacks after so many: the queue stays as short as in a real program.
WINDOW = 100
FIRST_OPS = 1000

Run = Callable[[asyncio.AbstractEventLoop, int], None]


def call_soon_chain(loop: asyncio.AbstractEventLoop, ops: int) -> None:
    """One callback that schedules itself again."""

    def step() -> None:
        nonlocal ops
        ops -= 1
        if ops > 0:
            loop.call_soon(step)
        else:
            loop.stop()

    loop.call_soon(step)
    loop.run_forever()


def call_soon_batch(loop: asyncio.AbstractEventLoop, ops: int) -> None:
    """1000 callbacks at a time that do nothing."""

    def nothing() -> None:
        pass

    def schedule() -> None:
        nonlocal ops
        for _ in range(BATCH):
            loop.call_soon(nothing)
        ops -= BATCH
        loop.call_soon(schedule if ops > 0 else loop.stop)

    loop.call_soon(schedule)
    loop.run_forever()


def loop_create_close(loop: asyncio.AbstractEventLoop, ops: int) -> None:
    """Another loop made and closed."""
    for _ in range(ops):
        type(loop)().close()


def call_soon_threadsafe(threads: int, loop: asyncio.AbstractEventLoop, ops: int) -> None:
    """Callbacks handed over by other threads, 100 at a time from each."""
    windows_left = threads * (per_thread := max(1, ops // threads // WINDOW))

    def nothing() -> None:
        pass

    def end_window(done: threading.Lock) -> None:
        nonlocal windows_left
        windows_left -= 1
        if windows_left == 0:
            loop.stop()
        done.release()

    def produce() -> None:
        done = threading.Lock()
        for _ in range(per_thread):
            done.acquire()
            for _ in range(WINDOW - 1):
                loop.call_soon_threadsafe(nothing)
            loop.call_soon_threadsafe(end_window, done)

    producers = [threading.Thread(target=produce) for _ in range(threads)]
    for producer in producers:
        loop.call_soon(producer.start)
    loop.run_forever()
    for producer in producers:
        producer.join()


def threadsafe_ping_pong(loop: asyncio.AbstractEventLoop, ops: int) -> None:
    """A thread hands over one callback and waits until it has run."""

    def produce() -> None:
        done = threading.Semaphore(0)
        for _ in range(ops):
            loop.call_soon_threadsafe(done.release)
            done.acquire()
        loop.call_soon_threadsafe(loop.stop)

    producer = threading.Thread(target=produce)
    loop.call_soon(producer.start)
    loop.run_forever()
    producer.join()


RUNS: dict[str, tuple[Run, str]] = {
    "call-soon-chain": (call_soon_chain, "call_soon: a callback that schedules itself again"),
    "call-soon-batch": (call_soon_batch, "call_soon: 1000 callbacks per turn"),
    "loop-create-close": (loop_create_close, "a loop made and closed"),
    "threadsafe-1": (
        partial(call_soon_threadsafe, 1),
        "call_soon_threadsafe from 1 thread, 100 at a time",
    ),
    "threadsafe-6": (
        partial(call_soon_threadsafe, 6),
        "call_soon_threadsafe from 6 threads, 100 at a time each",
    ),
    "threadsafe-ping-pong": (
        threadsafe_ping_pong,
        "call_soon_threadsafe from 1 thread, one at a time",
    ),
    **micro_tasks.RUNS,
    **micro_io.RUNS,
}


def timed(run: Run, loop: asyncio.AbstractEventLoop, ops: int) -> tuple[int, int]:
    """Runs so many operations; returns CPU and wall-clock nanoseconds."""
    cpu_ns, wall_ns = time.process_time_ns(), time.perf_counter_ns()
    run(loop, ops)
    return time.process_time_ns() - cpu_ns, time.perf_counter_ns() - wall_ns


def calibrated_ops(run: Run, loop: asyncio.AbstractEventLoop, seconds: float) -> int:
    """How many operations take about `seconds`, a multiple of every batch; warms up as well."""
    ops, enough_ns = FIRST_OPS, seconds * 0.2e9
    while (wall_ns := timed(run, loop, ops)[1]) < enough_ns:
        ops *= 10 if wall_ns < enough_ns / 10 else 2
    return max(1, round(ops * seconds * 1e9 / wall_ns / FIRST_OPS)) * FIRST_OPS


def measure(name: str, loop: str, settings: Settings) -> Sample:
    """Runs one workload in a process of its own."""
    words = ["--loop", loop, "--workload", name, "--seconds", settings.seconds]
    if settings.server_cpu is not None and not name.startswith("threadsafe"):
        words += ["--cpu", settings.server_cpu]
    with Child(python_module("micro", *words)) as child:
        return child.answer(settings.seconds * 20 + 60)


def main(argv: list[str] | None = None) -> None:
    """Measures one workload on one loop and prints the sample."""
    parser = argparse.ArgumentParser(prog="python -m bench.micro", description=__doc__)
    parser.add_argument("--loop", required=True, choices=CONTENDERS)
    parser.add_argument("--workload", required=True, choices=RUNS)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--cpu", type=int)
    options = parser.parse_args(argv)
    if options.cpu is not None:
        os.sched_setaffinity(0, {options.cpu})
    run, _ = RUNS[options.workload]
    loop = make_loop(options.loop)
    ops = calibrated_ops(run, loop, options.seconds)
    cpu_ns, wall_ns = timed(run, loop, ops)
    loop.close()
    print(json.dumps({"cpu_ns": cpu_ns / ops, "ops_per_s": ops * 1e9 / wall_ns}), flush=True)


WORKLOADS = tuple(
    Workload(name, "micro", summary, METRICS, partial(measure, name))
    for name, (_, summary) in RUNS.items()
)


if __name__ == "__main__":
    main()
