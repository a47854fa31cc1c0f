"""Rounds: contenders interleaved, and the quotients of what each round measured."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Literal

Sample = dict[str, float]


@dataclass(frozen=True, slots=True)
class Settings:
    """What every measurement of one benchmark run has in common.

    Attributes:
        seconds: Length of one measured window.
        warmup_s: Load before the window opens, in the same processes.
        server_cpu: CPU the server (or the only process) is pinned to; None leaves it free.
        client_cpu: CPU of the load generator; None leaves it free.
        congestion: TCP congestion control of both sides; None keeps the system's.
        client_spins: Whether the load generator spins instead of sleeping in epoll_wait.
        idle_connections: How many connections the memory workload opens.
        traced_requests: How many requests the system call workload traces.
    """

    seconds: float = 1.0
    warmup_s: float = 0.4
    server_cpu: int | None = None
    client_cpu: int | None = None
    congestion: str | None = None
    client_spins: bool = True
    idle_connections: int = 10_000
    traced_requests: int = 2_000


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure of a sample: its key there, its column heading, and which way is better.

    Attributes:
        better: "more" or "less" to get a column of quotients; None for a plain count.
        decimals: Digits after the point in the report.
    """

    key: str
    label: str
    better: Literal["more", "less"] | None = None
    decimals: int = 1


@dataclass(frozen=True, slots=True)
class Workload:
    """Something to measure.

    Attributes:
        kind: The group it can be chosen by: "micro", "net", "memory" or "syscalls".
        measure: Runs it once on the loop of that name, in processes of its own.
        metrics: The columns of its table. Further keys of the samples become plain counts.
        rounds_max: An upper bound where more rounds would only repeat the same number.
        needs: The name of a program it cannot do without.
    """

    name: str
    kind: str
    summary: str
    metrics: tuple[Metric, ...]
    measure: Callable[[str, Settings], Sample]
    rounds_max: int | None = None
    needs: str | None = None


@dataclass(slots=True)
class Result:
    """All samples of one workload: `samples[loop][round]`, and why a loop has none."""

    workload: Workload
    samples: dict[str, list[Sample]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def column(self, loop: str, key: str) -> list[float]:
        """The values of one figure on one loop, in the order of the rounds."""
        return [sample[key] for sample in self.samples.get(loop, ()) if key in sample]


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and extremes of a few values."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread | None":
        """The spread of the values; None if there are none."""
        return cls(median(values), min(values), max(values)) if values else None


def quotients(result: Result, metric: Metric, loop: str, reference: str) -> Spread | None:
    """How many times as good as the reference the loop was, round by round; above 1 is better."""
    pairs = zip(result.column(loop, metric.key), result.column(reference, metric.key), strict=False)
    if metric.better == "less":
        return Spread.of([theirs / ours for ours, theirs in pairs if ours > 0])
    return Spread.of([ours / theirs for ours, theirs in pairs if theirs > 0])


def run(
    workloads: Sequence[Workload],
    loops: Sequence[str],
    rounds: int,
    settings: Settings,
    on_step: Callable[[str], None],
) -> list[Result]:
    """Measures every workload on every loop.

    The loops take turns (A B C, A B C, ...), so that a slow minute of the machine hits all of
    them. The first turn of each loop is a short warm-up whose sample is thrown away.

    Args:
        on_step: Called with a description before each single measurement.
    """
    results = []
    for workload in workloads:
        result = Result(workload)
        wanted = min(rounds, workload.rounds_max or rounds)
        for number in range(0 if workload.rounds_max is None else 1, wanted + 1):
            for loop in loops:
                phase = f"round {number}/{wanted}" if number else "warm-up"
                on_step(f"{workload.name}: {phase}, {loop}")
                _measure_once(result, loop, settings, keep=number > 0)
        results.append(result)
    return results


def count_steps(workloads: Sequence[Workload], loops: Sequence[str], rounds: int) -> int:
    """How many times `run` calls `on_step`."""
    return len(loops) * sum(
        rounds + 1 if workload.rounds_max is None else min(rounds, workload.rounds_max)
        for workload in workloads
    )


def _measure_once(result: Result, loop: str, settings: Settings, *, keep: bool) -> None:
    if loop in result.failures:
        return
    if not keep:
        settings = replace(settings, seconds=min(settings.seconds, 0.2), warmup_s=0.1)
    try:
        sample = result.workload.measure(loop, settings)
    except (RuntimeError, OSError) as exc:
        result.failures[loop] = str(exc)
        result.samples.pop(loop, None)
        return
    if keep:
        result.samples.setdefault(loop, []).append(sample)
