"""What a row is, and where all of them are collected."""
import asyncio
import contextlib
import importlib
import inspect
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SUBJECTS = (
    "running",
    "callbacks",
    "tasks",
    "errors",
    "signals",
    "threads",
    "names",
    "connect",
    "servers",
    "server_object",
    "unix",
    "transports",
    "reading",
    "writing",
    "tls",
    "tls_options",
    "sendfile",
    "datagrams",
    "datagram_endpoints",
    "pipes",
    "subprocess",
    "subprocess_options",
    "readiness",
    "sock_ops",
    "streams",
)


class Unavailable(Exception):
    """This machine or this Python cannot show what the row asks for."""


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        check: Function or coroutine function that raises unless all is well. It is given, by the
            names of its parameters: `loop`, a new loop; `kind`, the Kind of loop; `folder`, an
            empty folder; `end`, a kind of transport.
        end: See there.
    """

    subject: str
    name: str
    check: Callable
    end: str | None = None

    def __str__(self):
        return f"{self.subject}: {self.name}"


ROWS = []


def subject(title):
    """The decorator for the rows of one subject."""

    def row(name, *, ends=(None,), python=(3, 11)):
        """Make a row of a function.

        Args:
            name: What it shows; `method(parameter=)` counts as covering that parameter.
            ends: Kinds of transport: a row for each.
            python: First Python whose asyncio has the classes that the row needs. Methods of the
                loop and their parameters are wanted on every Python.
        """

        def register(check):
            if sys.version_info < python:
                check = needs_python(python)
            for end in ends:
                label = name if end is None else f"{end}: {name}"
                ROWS.append(Row(title, label, check, end))
            return check

        return register

    return row


def needs_python(version):
    def check():
        raise Unavailable(f"needs Python {'.'.join(map(str, version))}")

    return check


def all_rows():
    """All rows, in the order of their subjects."""
    for name in SUBJECTS:
        importlib.import_module(f"surface.rows_{name}")
    return list(ROWS)


def run(row, kind, make):
    """Run a row in this process.

    Args:
        make: Makes the loop, of this kind, which the caller closes.
    """
    wanted = inspect.signature(row.check).parameters
    arguments = {"kind": kind, "end": row.end}
    with contextlib.ExitStack() as stack:
        if "folder" in wanted:
            arguments["folder"] = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if "loop" in wanted:
            arguments["loop"] = make()
        result = row.check(**{name: arguments[name] for name in wanted})
        if asyncio.iscoroutine(result):
            arguments["loop"].run_until_complete(result)
