"""Results as aligned text, as Markdown and as JSON."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bench.measure import Metric, Result, Settings, Spread, quotients

ABSENT = "-"
LEGEND = (
    "Figures are medians over the rounds. Columns headed `x REF` say how many times as good as the "
    "reference loop a loop was, as the median of the quotients of each round (smallest..largest): "
    "above 1 is better, for times as for rates. Requests/s compare loops only where the server was "
    "busy; CPU time per request always does."
)


@dataclass(frozen=True, slots=True)
class Table:
    """One workload, ready to be laid out."""

    title: str
    header: list[str]
    rows: list[list[str]]
    notes: list[str]


def _number(value: float, decimals: int) -> str:
    return f"{value:,.{decimals}f}"


def _median_text(values: Sequence[float], decimals: int) -> str:
    spread = Spread.of(values)
    return _number(spread.median, decimals) if spread else ABSENT


def _quotient_text(spread: Spread | None) -> str:
    if spread is None:
        return ABSENT
    return f"{spread.median:.2f} ({spread.low:.2f}..{spread.high:.2f})"


def _further_metrics(result: Result) -> Iterator[Metric]:
    """Columns for the samples' further keys, where the workload names only a part of them."""
    if result.workload.kind != "syscalls":
        return
    known = {metric.key for metric in result.workload.metrics}
    totals: dict[str, float] = {}
    for samples in result.samples.values():
        for key in samples[0].keys() - known:
            totals[key] = totals.get(key, 0) + samples[0][key]
    for key in sorted(totals, key=lambda key: (-totals[key], key)):
        yield Metric(key, key, decimals=2)


def make_table(result: Result, loops: Sequence[str], reference: str) -> Table:
    """Lays out one workload, leaving out columns in which no loop has a figure."""
    metrics = [
        metric
        for metric in (*result.workload.metrics, *_further_metrics(result))
        if any(result.column(loop, metric.key) for loop in loops)
    ]
    header = ["loop"]
    for metric in metrics:
        header += [metric.label, f"x {reference}"] if metric.better else [metric.label]
    rows = []
    for loop in (loop for loop in loops if loop in result.samples):
        row = [loop]
        for metric in metrics:
            row.append(_median_text(result.column(loop, metric.key), metric.decimals))
            if metric.better:
                row.append(_quotient_text(quotients(result, metric, loop, reference)))
        rows.append(row)
    notes = [f"{loop} failed: {reason}" for loop, reason in result.failures.items()]
    return Table(f"{result.workload.name}: {result.workload.summary}", header, rows, notes)


def _text_table(table: Table) -> Iterator[str]:
    yield table.title
    lines = [table.header, *table.rows] if table.rows else []
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        first, *others = line
        cells = [first.ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        yield "  " + "  ".join(cells).rstrip()
    yield from (f"  {note}" for note in table.notes)
    yield ""


def _markdown_table(table: Table) -> Iterator[str]:
    yield f"### {table.title}"
    yield ""
    if table.rows:
        yield "| " + " | ".join(table.header) + " |"
        yield "|---|" + "---:|" * (len(table.header) - 1)
        yield from ("| " + " | ".join(row) + " |" for row in table.rows)
        yield ""
    yield from (f"- {note}" for note in table.notes)
    if table.notes:
        yield ""


def as_text(conditions: Mapping[str, str], tables: Sequence[Table], notes: Sequence[str]) -> str:
    """The report for a terminal."""
    width = max(map(len, conditions))
    lines = [f"{name.ljust(width)}  {value}" for name, value in conditions.items()]
    lines += ["", *notes, ""] if notes else [""]
    for table in tables:
        lines += _text_table(table)
    return "\n".join([*lines, LEGEND])


def as_markdown(
    conditions: Mapping[str, str], tables: Sequence[Table], notes: Sequence[str]
) -> str:
    """The report as Markdown."""
    lines = ["# Benchmark results", ""]
    lines += [f"- {name}: {value}" for name, value in conditions.items()]
    lines += [f"- {note}" for note in notes]
    lines += ["", LEGEND, ""]
    for table in tables:
        lines += _markdown_table(table)
    return "\n".join(lines).rstrip() + "\n"


def as_data(
    conditions: Mapping[str, str],
    settings: Settings,
    results: Sequence[Result],
    reference: str,
    notes: Sequence[str],
) -> dict[str, Any]:
    """Everything measured: each sample of each round, and the quotients of the medians."""
    return {
        "conditions": dict(conditions),
        "settings": asdict(settings),
        "reference": reference,
        "notes": list(notes),
        "workloads": {result.workload.name: _result_data(result, reference) for result in results},
    }


def _result_data(result: Result, reference: str) -> dict[str, Any]:
    compared = [metric for metric in result.workload.metrics if metric.better]
    found = {
        loop: {metric.key: quotients(result, metric, loop, reference) for metric in compared}
        for loop in result.samples
    }
    return {
        "summary": result.workload.summary,
        "samples": result.samples,
        "failures": result.failures,
        "quotients": {
            loop: {key: asdict(spread) for key, spread in spreads.items() if spread}
            for loop, spreads in found.items()
        },
    }
