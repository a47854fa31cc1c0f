"""The rules of the house: imports point downward, files and functions stay small.

A folder is one room. A room may import itself and rooms of lower rank, nothing else.
"""
import ast
import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "eploop"
SOURCES = sorted(
    path.relative_to(PACKAGE)
    for pattern in ("*.py", "*.pyx", "*.pxd", "*.pyi")
    for path in PACKAGE.rglob(pattern)
)
FLOORS = (
    ("syscalls", "debug", "recycle", "fastcall", "_version"),
    ("errors", "handles", "options"),
    ("poller", "timers", "ready", "buffers", "addresses"),
    ("readers", "receivers"),
    ("core",),
    ("transports",),
    ("signals", "pidfd", "tls"),
    ("process", "sockops", "server", "statistics", "names", "older", "connect"),
    ("serve", "unix", "sendfile"),
    ("loop",),
    ("policy", "launch"),
    ("__init__", "demo", "__main__"),
)
RANK = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 80

IMPORT = re.compile(
    r"^[ \t]*from[ \t]+eploop((?:\.\w+)*)[ \t]+c?import[ \t]+(?:\(([^)]*)\)|([^(\n#]+))"
    r"|^[ \t]*c?import[ \t]+eploop((?:\.\w+)+)",
    re.M,
)
RELATIVE_IMPORT = re.compile(r"^\s*from\s+\.", re.M)
STAR_IMPORT = re.compile(r"^\s*from\s+\S+\s+c?import\s+\*", re.M)
INCLUDE = re.compile(r"^\s*include\s+['\"]", re.M)
# From a code: `OSError(...)` or `raise OSError(...)`, as opposed to `except OSError`.
OS_ERROR = re.compile(r"\b(?:OSError|PyErr_SetFromErrno\w*)\s*\(")
UNFINISHED = re.compile(r"\b(?:TODO|FIXME|XXX)\b")
FUNCTION = re.compile(r"^(\s*)(?:async\s+def|def|cp?def(?!\s+(?:class|extern|enum|struct|union)\b)"
                      r"(?!\s*:))\b[^\n]*\(")


def room_of(path):
    """The room of a file: its folder, or its own name."""
    return path.parts[0] if len(path.parts) > 1 else path.stem


def text_of(path):
    return (PACKAGE / path).read_text()


def imported_rooms(text):
    """The rooms that a file's import lines name."""
    rooms = set()
    for dotted, several, line, module in IMPORT.findall(text):
        dotted = dotted or module
        if dotted:
            rooms.add(dotted.split(".")[1])
        else:       # from eploop import a, b as c
            names = re.sub(r"#.*|\s+as\s+\w+", "", several or line).split(",")
            rooms.update(name.strip() for name in names if name.strip())
    return rooms


def python_functions(text):
    """Name and number of lines of each function of a Python file."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, node.end_lineno - node.lineno + 1


def cython_functions(text):
    """The same for a Cython file: up to the next line that is not indented further."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        match = FUNCTION.match(line)
        if match is None:
            continue
        indent, end = len(match[1]), number + 1
        signature_open = not line.rstrip().endswith(":")
        for later in range(number + 1, len(lines)):
            if not lines[later].strip():
                continue
            depth = len(lines[later]) - len(lines[later].lstrip())
            if depth <= indent and not (signature_open and lines[later].lstrip()[0] in ")]"):
                break
            if signature_open and lines[later].rstrip().endswith(":"):
                signature_open = False
            end = later + 1
        yield line.strip(), end - number


def functions(path):
    text = text_of(path)
    return python_functions(text) if path.suffix in (".py", ".pyi") else cython_functions(text)


pytestmark = pytest.mark.skipif(not SOURCES, reason="runs from a checkout only")


@pytest.mark.parametrize("path", SOURCES, ids=str)
def test_room_has_a_rank(path):
    assert room_of(path) in RANK, f"add {room_of(path)!r} to FLOORS, on the lowest floor it can be"


@pytest.mark.parametrize("path", SOURCES, ids=str)
def test_imports_point_downward(path):
    here = room_of(path)
    for there in imported_rooms(text_of(path)):
        if there == "__version__":
            continue
        assert there in RANK, f"{path} imports {there!r}: add it to FLOORS"
        assert there == here or RANK[there] < RANK[here], f"{here} may not import {there}"


@pytest.mark.parametrize("path", SOURCES, ids=str)
def test_imports_are_absolute_and_name_what_they_take(path):
    text = text_of(path)
    assert not RELATIVE_IMPORT.search(text), "write `from eploop.room import name`"
    assert not STAR_IMPORT.search(text), "name what you import"
    assert not INCLUDE.search(text), "no include: make it a room"


@pytest.mark.parametrize("path", SOURCES, ids=str)
def test_file_is_not_too_long(path):
    length = len(text_of(path).splitlines())
    assert length <= MAX_FILE_LINES, f"{length} lines: it wants to be two files"


@pytest.mark.parametrize("path", SOURCES, ids=str)
def test_functions_are_not_too_long(path):
    too_long = [(name, length) for name, length in functions(path) if length > MAX_FUNCTION_LINES]
    assert not too_long


@pytest.mark.parametrize("path", SOURCES, ids=str)
def test_os_errors_are_built_in_one_place(path):
    if room_of(path) != "errors":
        found = [line for line in text_of(path).splitlines() if OS_ERROR.search(line)]
        assert not found, "errors is the only door from a code to an OSError"


@pytest.mark.parametrize("path", SOURCES, ids=str)
def test_nothing_is_left_unfinished(path):
    assert not UNFINISHED.search(text_of(path))


@pytest.mark.parametrize(("text", "rooms"), [
    ("from eploop.poller cimport Watcher", {"poller"}),
    ("from eploop.transports.base import A, B  # why", {"transports"}),
    ("    from eploop import timers, core as c", {"timers", "core"}),
    ("from eploop.syscalls cimport (\n    epoll,\n    sock,\n)", {"syscalls"}),
    ("from eploop cimport (\n    ready,\n    debug)", {"ready", "debug"}),
    ("import eploop.loop", {"loop"}),
    ("cimport eploop.handles as h", {"handles"}),
    ("import asyncio\nfrom os import path", set()),
])
def test_import_lines_are_understood(text, rooms):
    assert imported_rooms(text) == rooms


def test_cython_functions_are_measured():
    text = (
        "cdef class A:\n"
        "    cdef int f(self) except -1:\n"
        "        return 0\n"
        "\n"
        "    def g(\n"
        "        self,\n"
        "    ):\n"
        "        pass\n"
        "cdef int x\n"
        "async def h():\n"
        "    pass\n"
    )
    assert [length for _, length in cython_functions(text)] == [2, 4, 2]


def test_rule_against_os_errors_is_understood():
    assert OS_ERROR.search("raise OSError(-rc, 'recv')")
    assert not OS_ERROR.search("except OSError:")
    assert not OS_ERROR.search("except (OSError, ValueError):")
    assert not OS_ERROR.search("isinstance(exc, OSError)")
