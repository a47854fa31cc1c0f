"""The contenders: event loops by name, and whether they can be had here."""

import asyncio
import importlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import metadata

REFERENCE = "uvloop"


@dataclass(frozen=True, slots=True)
class Contender:
    """One event loop that can be measured.

    Attributes:
        name: What the command line and the report call it.
        package: The distribution whose version the report names; None for the standard library.
        make: Makes a new loop; raises ImportError if its package is missing.
    """

    name: str
    package: str | None
    make: Callable[[], asyncio.AbstractEventLoop]


def _make_uvloop() -> asyncio.AbstractEventLoop:
    return importlib.import_module("uvloop").new_event_loop()


def _eploop(mode: str) -> Contender:
    def make() -> asyncio.AbstractEventLoop:
        return importlib.import_module("eploop").new_event_loop(mode=mode)

    return Contender(f"eploop:{mode}", "eploop", make)


def _make_aiofastnet() -> asyncio.AbstractEventLoop:
    """uvloop with aiofastnet's transports, servers and TLS in the place of its own."""
    loop = _make_uvloop()
    importlib.import_module("aiofastnet").patch_loop(loop)
    return loop


def _make_memorybio() -> asyncio.AbstractEventLoop:
    """eploop that does TLS through Python's ssl module, as where OpenSSL cannot be reached."""
    os.environ["EPLOOP_TLS"] = "memorybio"    # read when the loop is made
    try:
        return importlib.import_module("eploop").new_event_loop(mode="edge")
    finally:
        del os.environ["EPLOOP_TLS"]


CONTENDERS = {
    contender.name: contender
    for contender in (
        Contender("asyncio", None, asyncio.SelectorEventLoop),
        Contender("uvloop", "uvloop", _make_uvloop),
        Contender("aiofastnet", "aiofastnet", _make_aiofastnet),
        _eploop("edge"),
        _eploop("oneshot"),
        _eploop("level"),
        Contender("eploop:edge-memorybio", "eploop", _make_memorybio),
    )
}


def make_loop(name: str) -> asyncio.AbstractEventLoop:
    """Makes a new event loop of the contender called `name`."""
    return CONTENDERS[name].make()


def why_missing(name: str) -> str | None:
    """Tries to make one loop; returns the reason if that fails, else None."""
    try:
        make_loop(name).close()
    except Exception as exc:
        return f"{type(exc).__name__}: {exc}"
    return None


def versions(names: Iterable[str]) -> dict[str, str]:
    """The versions of the packages behind the named contenders."""
    found = {}
    for package in {CONTENDERS[name].package for name in names} - {None}:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = getattr(importlib.import_module(package), "__version__", "unknown")
    return dict(sorted(found.items()))


def pick_reference(names: list[str]) -> str:
    """The loop that all quotients refer to: uvloop if it takes part, else the first one."""
    return REFERENCE if REFERENCE in names else names[0]
