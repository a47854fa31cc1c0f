"""Timers: how late a sleep ends, and that none ends early.

Run as a module this is the child process: one loop, one line of JSON.
"""

import argparse
import asyncio
import json
import os
import random
import statistics
import time
from functools import partial

from bench.loops import CONTENDERS, make_loop
from bench.measure import Metric, Sample, Settings, Workload
from bench.processes import Child, python_module

SLEEPS_MS = (0.2, 1.3, 10.1)
SLEEPS_AT_ONCE = 100
LONGEST_RANDOM_S = 0.02
METRICS = (
    *(Metric(f"late_us_{ms}", f"{ms} ms: late by us", decimals=0) for ms in SLEEPS_MS),
    Metric("late_us_random", "random: late by us", decimals=0),
    Metric("late_us_worst", "random: worst us", decimals=0),
    Metric("early", "early", decimals=0),
)


async def late_s(seconds: float) -> float:
    """Sleeps; returns how much longer it took than asked for."""
    began = time.monotonic()
    await asyncio.sleep(seconds)
    return time.monotonic() - began - seconds


async def one_by_one(seconds: float, count: int) -> list[float]:
    """Sleeps one after the other: the loop is idle but for them."""
    return [await late_s(seconds) for _ in range(count)]


async def random_sleeps(count: int) -> list[float]:
    """Sleeps of random length, 100 at a time."""
    dice = random.Random(1)

    async def some() -> list[float]:
        each = count // SLEEPS_AT_ONCE
        return [await late_s(dice.uniform(0, LONGEST_RANDOM_S)) for _ in range(each)]

    found = await asyncio.gather(*(some() for _ in range(SLEEPS_AT_ONCE)))
    return [late for lates in found for late in lates]


async def sample(seconds: float, sleeps: int) -> Sample:
    """All figures; `seconds` for each length of the single sleeps."""
    figures, all_of_them = {}, []
    for ms in SLEEPS_MS:
        lates = await one_by_one(ms / 1000, max(10, round(seconds * 1000 / ms)))
        figures[f"late_us_{ms}"] = statistics.median(lates) * 1e6
        all_of_them += lates
    lates = await random_sleeps(sleeps)
    all_of_them += lates
    figures["late_us_random"] = statistics.median(lates) * 1e6
    figures["late_us_worst"] = max(lates) * 1e6
    figures["early"] = sum(late < 0 for late in all_of_them)
    return figures


def measure(sleeps: int, loop: str, settings: Settings) -> Sample:
    """Runs one loop in a process of its own."""
    words = ["--loop", loop, "--seconds", settings.seconds, "--sleeps", sleeps]
    if settings.server_cpu is not None:
        words += ["--cpu", settings.server_cpu]
    with Child(python_module("timers", *words)) as child:
        return child.answer(settings.seconds * 20 + 60)


def main(argv: list[str] | None = None) -> None:
    """Measures one loop and prints the sample."""
    parser = argparse.ArgumentParser(prog="python -m bench.timers", description=__doc__)
    parser.add_argument("--loop", required=True, choices=CONTENDERS)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--sleeps", type=int, default=10_000)
    parser.add_argument("--cpu", type=int)
    options = parser.parse_args(argv)
    if options.cpu is not None:
        os.sched_setaffinity(0, {options.cpu})
    loop = make_loop(options.loop)
    figures = loop.run_until_complete(sample(options.seconds, options.sleeps))
    loop.close()
    print(json.dumps(figures), flush=True)


WORKLOADS = (
    Workload(
        "sleep-late",
        "timers",
        "asyncio.sleep: median lateness one by one, and of 10 000 random sleeps up to 20 ms",
        METRICS,
        partial(measure, 10_000),
    ),
)


if __name__ == "__main__":
    main()
