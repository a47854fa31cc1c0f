"""Compares what became of the tests with the explained list."""
import fnmatch
import tomllib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from running import BAD

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Explanation:
    """One entry of explained.toml."""

    tests: tuple
    reason: str
    may_pass: bool

    def covers(self, name):
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self.tests)


@dataclass
class Verdict:
    counts: Counter = field(default_factory=Counter)
    complaints: list = field(default_factory=list)

    def summary(self):
        """One line."""
        order = ("passed", "explained", "unexplained", "skipped")
        return "    " + ", ".join(f"{self.counts[name]} {name}" for name in order)


def explained(suite, mode):
    """The explanations that hold for a suite; asyncio's own loop has none."""
    if mode == "asyncio":
        return []
    with (HERE / "explained.toml").open("rb") as file:
        entries = tomllib.load(file)[suite]
    return [
        Explanation(tuple(entry["tests"]), entry["reason"], entry.get("may_pass", False))
        for entry in entries
    ]


def judge(results, explanations):
    """The verdict on the results of a run."""
    verdict = Verdict()
    for name, (outcome, message) in sorted(results.items()):
        explanation = next((entry for entry in explanations if entry.covers(name)), None)
        if outcome in BAD:
            if explanation is not None:
                verdict.counts["explained"] += 1
            else:
                verdict.counts["unexplained"] += 1
                verdict.complaints.append(f"{outcome}: {name}\n{message}")
            continue
        verdict.counts[outcome] += 1
        if outcome == "passed" and explanation is not None and not explanation.may_pass:
            verdict.complaints.append(f"passes, take it out of explained.toml: {name}")
    return verdict
