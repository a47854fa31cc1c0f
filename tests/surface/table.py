"""The table, as text and as Markdown."""
import platform
from itertools import groupby

INTRODUCTION = """\
# Features

Every public method of asyncio's event loop, of its transports and of its servers, with every
parameter that is documented up to Python 3.14; and behaviour that users ask for or stumble over.
Each row is a small program that looks at the effect of what it calls: see `tests/surface`. This
page is its output:

```sh
{command}
```

Made with {versions}.

- **ok**: does what it should.
- **missing**: there is no such method or parameter.
- **wrong**: it is accepted, but the effect is another one, or none.
- **raises** …: an exception that should not be there.
- **hangs**, **crashes**: what should happen does not, or the process ends.
- **n/a**: cannot be shown here, for want of a newer Python for instance.

What newer Pythons have added to the loop is wanted here on older ones too, so asyncio's own column
depends on the version of Python. Why a cell is not ok is told [at the end](#why).
"""
COMMAND = "python tests/surface --markdown docs/features.md"


def by_subject(rows):
    return [(title, list(group)) for title, group in groupby(rows, key=lambda row: row.subject)]


def summary(rows, kind, cells):
    """How many of the rows that can be shown are ok."""
    shown = [cells[row, kind].word for row in rows if cells[row, kind].word != "n/a"]
    return f"{shown.count('ok')} of {len(shown)}"


def text(rows, kinds, cells):
    """The table for a terminal."""
    width = max((len(row.name) for row in rows), default=0) + 2
    widths = [
        max(len(kind.name), *(len(cells[row, kind].word) for row in rows)) + 2 for kind in kinds
    ] if rows else []
    columns = list(zip(kinds, widths, strict=False))
    lines = [" " * width + "".join(kind.name.ljust(wide) for kind, wide in columns)]
    for title, group in by_subject(rows):
        lines += ["", title]
        for row in group:
            words = (cells[row, kind].word.ljust(wide) for kind, wide in columns)
            lines.append(row.name.ljust(width) + "".join(words).rstrip())
    counts = (summary(rows, kind, cells).ljust(wide) for kind, wide in columns)
    return "\n".join([*lines, "", "ok".ljust(width) + " ".join(counts)])


def reasons(rows, kind, cells):
    """(row, word, detail) for each cell of one loop that is not ok."""
    for row in rows:
        cell = cells[row, kind]
        if not cell.is_good:
            yield row, cell.word, cell.detail


def report(rows, kinds, cells):
    """Why cells are not ok, for a terminal."""
    lines = []
    for kind in kinds:
        found = list(reasons(rows, kind, cells))
        if found:
            lines += ["", kind.name]
            lines += [f"  {row}: {word}: {detail}" for row, word, detail in found]
    return "\n".join(lines)


def markdown(rows, kinds, cells):
    """The page for the documentation."""
    versions = [f"Python {platform.python_version()}"]
    versions += sorted({f"{kind.package} {kind.version}" for kind in kinds if kind.version})
    parts = [INTRODUCTION.format(command=COMMAND, versions=", ".join(versions))]
    parts.append(table("Summary", [
        (title, [summary(group, kind, cells) for kind in kinds])
        for title, group in [*by_subject(rows), ("All", rows)]
    ], kinds))
    for title, group in by_subject(rows):
        parts.append(table(title, [
            (escape(row.name), [cells[row, kind].word for kind in kinds]) for row in group
        ], kinds))
    parts.append("## Why\n")
    for kind in kinds:
        found = list(reasons(rows, kind, cells))
        if found:
            parts.append(f"### {kind.name}\n\n" + "".join(
                f"- {escape(str(row))}: {word}{': ' if detail else ''}{escape(detail)}\n"
                for row, word, detail in found))
    return "\n".join(parts)


def table(title, lines, kinds):
    """One Markdown table under a heading."""
    head = "".join(f" {kind.name} |" for kind in kinds)
    body = "\n".join(f"| {name} | {' | '.join(words)} |" for name, words in lines)
    return f"## {title}\n\n| |{head}\n|---|{'---|' * len(kinds)}\n{body}\n"


def escape(words):
    """Text that Markdown takes literally."""
    for mark in "\\`*_<|[":
        words = words.replace(mark, "\\" + mark)
    return words
