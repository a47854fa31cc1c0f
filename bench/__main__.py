"""The command line: `python -m bench`."""

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from bench import (
    environment,
    loadgen,
    loops,
    measure,
    memory,
    micro,
    net,
    report,
    syscalls,
    timers,
)
from bench.progress import Progress

WORKLOADS = (
    *micro.WORKLOADS,
    *timers.WORKLOADS,
    *net.WORKLOADS,
    *memory.WORKLOADS,
    *syscalls.WORKLOADS,
)
QUICK = {"seconds": 0.2, "warmup_s": 0.1, "idle_connections": 1000, "traced_requests": 500}
QUICK_ROUNDS = 2
ROUNDS = 5


def words(text: str) -> list[str]:
    """Splits a list at its commas."""
    return [word for word in text.split(",") if word]


def at_least_one(text: str) -> int:
    """A positive integer."""
    if (value := int(text)) < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def positive_seconds(text: str) -> float:
    """A positive number."""
    if not 0 < (value := float(text)) < 3600:
        raise argparse.ArgumentTypeError("must be between 0 and 3600")
    return value


def make_parser() -> argparse.ArgumentParser:
    """The options, and the workloads as an epilog."""
    width = max(len(workload.name) for workload in WORKLOADS)
    known = [f"  {w.name.ljust(width)}  [{w.kind}] {w.summary}" for w in WORKLOADS]
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Compare asyncio event loops: contenders interleaved, medians of quotients.",
        epilog="workloads:\n" + "\n".join(known),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--loops",
        type=words,
        default=list(loops.CONTENDERS),
        metavar="A,B",
        help=f"contenders (default: all of {', '.join(loops.CONTENDERS)}); the reference is "
        "uvloop if it takes part, else the first",
    )
    parser.add_argument(
        "--workloads",
        type=words,
        default=["*"],
        metavar="A,B",
        help="names, kinds (micro, net, memory, syscalls) or patterns like 'tcp-*' (default: all)",
    )
    parser.add_argument("--rounds", type=at_least_one, help=f"default {ROUNDS}")
    parser.add_argument("--seconds", type=positive_seconds, help="per measured window (default 1)")
    parser.add_argument(
        "--quick", action="store_true", help="a smoke test: short windows, few rounds"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables")
    return parser


def choose_workloads(
    parser: argparse.ArgumentParser, patterns: Sequence[str]
) -> list[measure.Workload]:
    """The workloads that a name, kind or pattern asks for, in the order of the suite."""
    chosen = set()
    for pattern in patterns:
        found = {w.name for w in WORKLOADS if w.kind == pattern or fnmatchcase(w.name, pattern)}
        if not found:
            parser.error(f"no workload is called {pattern!r}; --help lists them")
        chosen |= found
    return [workload for workload in WORKLOADS if workload.name in chosen]


def choose_loops(parser: argparse.ArgumentParser, names: Sequence[str]) -> dict[str, str | None]:
    """The contenders asked for, each with the reason why it cannot take part, or None."""
    for name in names:
        if name not in loops.CONTENDERS:
            parser.error(f"no loop is called {name!r}; there are {', '.join(loops.CONTENDERS)}")
    return {name: loops.why_missing(name) for name in names}


def drop_impossible(workloads: list[measure.Workload]) -> tuple[list[measure.Workload], list[str]]:
    """Leaves out the workloads that lack a program; returns the others and a note for each."""
    possible, notes = [], []
    for workload in workloads:
        lacks = missing_program(workload.needs)
        if lacks:
            notes.append(f"{workload.name} was skipped: {lacks}")
        else:
            possible.append(workload)
    return possible, notes


def missing_program(program: str | None) -> str | None:
    """Why a program that a workload needs cannot be had; None if it can."""
    if program == "strace" and shutil.which("strace") is None:
        return "strace is not installed"
    if program is not None:
        try:
            loadgen.executable(tls=program == "openssl")
        except RuntimeError as exc:
            return str(exc)
    return None


def make_settings(options: argparse.Namespace) -> measure.Settings:
    """The settings that the options and this machine ask for."""
    server_cpu, client_cpu = environment.pick_cpus()
    values = dict(QUICK) if options.quick else {}
    if options.seconds is not None:
        values["seconds"] = options.seconds
    return measure.Settings(
        server_cpu=server_cpu,
        client_cpu=client_cpu,
        client_spins=client_cpu is not None,
        congestion=environment.pick_congestion(),
        **values,
    )


def main(argv: list[str] | None = None) -> int:
    """Runs the suite; returns the exit status: 1 if a loop failed in a workload."""
    parser = make_parser()
    options = parser.parse_args(argv)
    workloads, notes = drop_impossible(choose_workloads(parser, options.workloads))
    reasons = choose_loops(parser, options.loops)
    names = [name for name, reason in reasons.items() if reason is None]
    notes += [f"{name} was left out: {reason}" for name, reason in reasons.items() if reason]
    for note in notes:
        print(note, file=sys.stderr)
    if not names or not workloads:
        parser.error("nothing is left to measure")
    settings = make_settings(options)
    rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    conditions = environment.describe(settings, names, rounds)
    progress = Progress(measure.count_steps(workloads, names, rounds))
    try:
        results = measure.run(workloads, names, rounds, settings, progress.step)
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
    finally:
        progress.end()
    reference = loops.pick_reference(names)
    tables = [report.make_table(result, names, reference) for result in results]
    print(report.as_text(conditions, tables, notes))
    if options.markdown:
        options.markdown.write_text(report.as_markdown(conditions, tables, notes))
    if options.json:
        data = report.as_data(conditions, settings, results, reference, notes)
        options.json.write_text(json.dumps(data, indent=1) + "\n")
    return 1 if any(result.failures for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
