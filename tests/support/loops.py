"""The loops that the tests run on, and the marks that narrow the choice."""
import asyncio
import sys
from dataclasses import dataclass

import pytest

from support.features import missing

MODES = ("edge", "oneshot", "level")

# While this is False the eploop parameters are left out when eploop cannot be imported, so that
# the tests can be checked against asyncio alone.  True makes a missing eploop fail the whole run.
EPLOOP_REQUIRED = False

try:
    # A folder without __init__.py imports as an empty package, hence a name from it.
    from eploop import new_event_loop as _new_eploop
except ImportError as exc:
    EPLOOP_MISSING = f"eploop cannot be imported ({exc})"
else:
    EPLOOP_MISSING = None


@dataclass(frozen=True)
class LoopSpec:
    """One way to make a loop: asyncio's own or eploop in one mode, each with debug off or on."""

    name: str
    debug: bool

    @property
    def is_asyncio(self):
        return self.name == "asyncio"

    @property
    def mode(self):
        return None if self.is_asyncio else self.name

    def __str__(self):
        return f"{self.name}-debug" if self.debug else self.name

    def make(self):
        loop = asyncio.SelectorEventLoop() if self.is_asyncio else _new_eploop(mode=self.mode)
        loop.set_debug(self.debug)
        return loop


SPECS = tuple(
    LoopSpec(name, debug) for name in ("asyncio", *MODES) for debug in (False, True)
)


def differs_from_asyncio(reason, *, since=None, below=None):
    """Mark a behaviour in which eploop is right and asyncio is not.

    Args:
        reason: What asyncio does instead.
        since: First Python version, as a tuple, in which asyncio differs.
        below: First Python version in which asyncio no longer differs.
    """
    return pytest.mark.differs_from_asyncio(reason, since=since, below=below)


def eploop_only(reason):
    """Mark a test of something that asyncio does not have."""
    return pytest.mark.eploop_only(reason)


def only_mode(name):
    """Mark a promise of one mode of eploop."""
    return pytest.mark.only_mode(name)


def without_debug(reason):
    """Mark a test that gains nothing from running again in debug mode."""
    return pytest.mark.debug_modes(False, reason=reason)


def only_in_debug(test):
    """Mark a test of what debug mode adds."""
    return pytest.mark.debug_modes(True)(test)


def needs_python(*version):
    """Mark a test of something that came with this Python version."""
    name = ".".join(map(str, version))
    return pytest.mark.skipif(sys.version_info < version, reason=f"came with Python {name}")


def asyncio_differs_here(mark):
    since, below = mark.kwargs["since"], mark.kwargs["below"]
    return (since is None or sys.version_info >= since) and (
        below is None or sys.version_info < below
    )


def specs_for(marks, names, *, check_differences=False):
    """The parameters of one test.

    Args:
        marks: Function that gives all marks of a name, from the nearest outward.
        names: Names of the loops that this run was asked for.
        check_differences: Run what differs from asyncio there as well, and let it fail.
    """
    differs = any(asyncio_differs_here(mark) for mark in marks("differs_from_asyncio"))
    only_ours = any(True for _ in marks("eploop_only"))
    pending = missing(name for mark in marks("needs") for name in mark.args)
    debug = next((mark.args[0] for mark in marks("debug_modes")), None)
    mode = next((mark.args[0] for mark in marks("only_mode")), None)
    chosen = []
    for spec in SPECS:
        if spec.name not in names or debug not in (None, spec.debug):
            continue
        if mode not in (None, spec.name):
            continue
        if spec.is_asyncio:
            if only_ours or (differs and not check_differences):
                continue
            because = pytest.mark.xfail(strict=True, reason="differs from asyncio")
            chosen.append(pytest.param(spec, id=str(spec), marks=because if differs else ()))
        elif not EPLOOP_MISSING and not pending:
            chosen.append(pytest.param(spec, id=str(spec)))
    return chosen
