"""Runs rows in child processes, so that what crashes or hangs takes nothing else along."""
import asyncio
import contextlib
import gc
import json
import logging
import os
import select
import signal
import sys
import warnings
from dataclasses import asdict

from support import waiting

from surface.outcome import Outcome, of_exception
from surface.rows import run

LIMIT_S = 6.0
# Less than the limit: what does not come is then told from what does not end.
PATIENCE_S = 2.0


def probe(row, kind, *, verbose=False):
    """The outcome of one row on one kind of loop, run in a forked child."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        run_child(row, kind, writing, verbose)
    os.close(writing)
    try:
        line = read_line(reading)
    finally:
        os.close(reading)
        outcome = finish(pid)
    return Outcome(**json.loads(line)) if line else outcome


def run_child(row, kind, writing, verbose):
    """The child's part: tell the outcome, and end."""
    os.setsid()
    if not verbose:
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 1)
        os.dup2(null, 2)
        logging.getLogger("asyncio").addHandler(logging.NullHandler())
    warnings.simplefilter("ignore")
    gc.freeze()
    waiting.PATIENCE_S = PATIENCE_S
    outcome = outcome_of(row, kind)
    os.write(writing, (json.dumps(asdict(outcome)) + "\n").encode())
    os._exit(0)


def outcome_of(row, kind):
    """Run a row in this process, on a loop of its own."""
    loops = []

    def make():
        loops.append(kind.make())
        return loops[-1]

    try:
        run(row, kind, make)
        for loop in loops:
            end(loop)
    except BaseException as exc:
        return of_exception(exc)
    return Outcome("ok")


def end(loop):
    """Close a loop as a program would."""
    if not loop.is_closed():
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


def read_line(fd):
    """One line from the child; b"" if it ended, or did not end, without one."""
    data = b""
    while not data.endswith(b"\n"):
        ready, _, _ = select.select([fd], [], [], LIMIT_S)
        some = os.read(fd, 65536) if ready else b""
        if not some:
            return b""
        data += some
    return data


def finish(pid):
    """Kill the child, with all that it started; the outcome if it has told none."""
    ended, status = os.waitpid(pid, os.WNOHANG)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    if not ended:
        _, status = os.waitpid(pid, 0)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            return Outcome("hangs", f"no end after {LIMIT_S:g} s")
    if os.WIFSIGNALED(status):
        return Outcome("crashes", signal.Signals(os.WTERMSIG(status)).name)
    return Outcome("crashes", f"exit status {os.waitstatus_to_exitcode(status)}")
