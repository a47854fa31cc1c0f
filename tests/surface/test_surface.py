"""The probe's rows on eploop in every mode; and that no method or parameter is left out."""
import asyncio
import inspect
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.loops import eploop_only, without_debug

from surface import reference
from surface.contain import outcome_of, probe
from surface.kinds import KINDS
from surface.outcome import of_exception
from surface.rows import Row, Unavailable, all_rows, run
from surface.table import markdown, text

ROWS = all_rows()
# Parameters that asyncio's methods accept only to refuse them, or that are not documented.
NOT_WANTED = {
    ("create_datagram_endpoint", "reuse_address"),
    ("subprocess_exec", "program"),
    ("sock_recv", "n"),     # "nbytes" elsewhere
    *((method, parameter) for method in ("subprocess_exec", "subprocess_shell")
      for parameter in ("universal_newlines", "shell", "bufsize", "encoding", "errors", "text")),
}


@eploop_only("other loops are compared in the table, not tested")
@without_debug("rows set debug mode where they need it")
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_row(row, loop_spec, loop_factory):
    try:
        run(row, KINDS[f"eploop:{loop_spec.mode}"], loop_factory)
    except Unavailable as exc:
        pytest.skip(str(exc))


def test_names_are_unique():
    names = [str(row) for row in ROWS]
    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize("area", reference.COVERAGE)
def test_everything_is_covered(area):
    methods, start = reference.COVERAGE[area]
    left_out = reference.wanted(methods) - reference.covered(ROWS, start)
    assert not left_out


@pytest.mark.parametrize(("classes", "methods"), [
    ((asyncio.AbstractEventLoop, asyncio.SelectorEventLoop), reference.LOOP),
    ((asyncio.AbstractServer,), reference.SERVER),
    ((asyncio.Transport,), reference.BASE | reference.READ | reference.WRITE),
    ((asyncio.DatagramTransport,), reference.BASE | reference.DATAGRAM),
    ((asyncio.SubprocessTransport,), reference.BASE | reference.SUBPROCESS),
], ids=["loop", "server", "stream", "datagram", "subprocess"])
def test_reference_knows_this_python(classes, methods):
    """What this Python's asyncio has is in the reference."""
    found = set()
    for name in (name for name in dir(classes[0]) if not name.startswith("_")):
        for cls in classes:
            found.add((name, ""))
            parameters = list(inspect.signature(getattr(cls, name)).parameters)[1:]
            found.update((name, parameter) for parameter in parameters)
    unknown = found - reference.wanted(methods) - NOT_WANTED
    assert not unknown


# ---- the probe itself


def fails():
    raise AssertionError("so it is")


def test_outcomes():
    kind = KINDS["asyncio"]
    assert outcome_of(Row("subject", "name", lambda: None), kind).word == "ok"
    assert outcome_of(Row("subject", "name", fails), kind).word == "wrong"
    words = [of_exception(exc).word for exc in (
        TypeError("f() got an unexpected keyword argument 'x'"),
        AttributeError("'Loop' object has no attribute 'x'"),
        AttributeError("'NoneType' object has no attribute 'x'"),
        NotImplementedError(), Unavailable("no IPv6"), TimeoutError(), OSError(1, "no"))]
    assert words == ["missing", "missing", "raises AttributeError", "missing", "n/a", "hangs",
                     "raises PermissionError"]


def test_tables():
    kinds = [KINDS["asyncio"]]
    rows = [Row("Subject", "good_one(x=)", lambda: None), Row("Subject", "bad one", fails)]
    cells = {(row, kinds[0]): outcome_of(row, kinds[0]) for row in rows}
    assert "bad one" in text(rows, kinds, cells)
    page = markdown(rows, kinds, cells)
    assert "| Subject | 1 of 2 |" in page
    assert "| good\\_one(x=) | ok |" in page
    assert "- Subject: bad one: wrong: so it is" in page


def test_command(tmp_path):
    """What crashes or hangs there is contained; here nothing does."""
    page = tmp_path / "features.md"
    done = subprocess.run(
        [sys.executable, Path(__file__).parent, "--loops", "asyncio", "--only", "is_running()",
         "--markdown", page], capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stderr) == (0, "")
    assert "is_running()" in done.stdout
    assert "| is\\_running() | ok |" in page.read_text()


@pytest.mark.parametrize(("check", "word"), [
    (lambda: os.kill(os.getpid(), signal.SIGTERM), "crashes"),
    (lambda: os._exit(3), "crashes"),
    (lambda: time.sleep(60), "hangs"),
])
def test_containment(check, word, monkeypatch):
    monkeypatch.setattr("surface.contain.LIMIT_S", 0.2)
    assert probe(Row("subject", "name", check), KINDS["asyncio"]).word == word
