"""The event loops that the demo compares."""

import asyncio
import importlib

from eploop.options import MODES

EPLOOP_PREFIX = "eploop:"
NAMES = ("asyncio", "uvloop", *(EPLOOP_PREFIX + mode for mode in MODES))


def make_loop(name: str) -> asyncio.AbstractEventLoop:
    """Makes a new event loop.

    Args:
        name: One of `NAMES`.

    Raises:
        ImportError: Its package is missing.
    """
    if name.startswith(EPLOOP_PREFIX):
        eploop = importlib.import_module("eploop")
        return eploop.new_event_loop(mode=name.removeprefix(EPLOOP_PREFIX))
    if name == "uvloop":
        return importlib.import_module("uvloop").new_event_loop()
    return asyncio.SelectorEventLoop()


def why_missing(name: str) -> str | None:
    """Tries to make one loop; returns the reason if that fails, else None."""
    try:
        make_loop(name).close()
    except Exception as exc:
        return str(exc) or type(exc).__name__
    return None
