"""The command line of `python -m eploop demo`."""

import argparse
import asyncio
import errno
import os
import resource
import sys
from collections.abc import Callable, Sequence

from eploop.demo import http_server
from eploop.demo.comparison import Line, compare
from eploop.demo.contenders import EPLOOP_PREFIX, NAMES, make_loop, why_missing
from eploop.demo.display import Progress, aligned
from eploop.demo.driver import DemoFailed
from eploop.errors import os_error_saying
from eploop.options import resolve_mode

DESCRIPTION = """\
Compare event loops: an asyncio echo server (asyncio.Protocol, 1 KiB messages) and an asyncio
HTTP/1.1 server (asyncio.start_server), unchanged, on each loop at hand."""
EPILOG = """\
examples:
  python -m eploop demo
  python -m eploop demo --seconds 10 --loops uvloop,eploop:edge
  python -m eploop demo --serve 8080

Servers and driver are separate processes on separate CPUs, and the loops take turns. Compare the
CPU time per request: a fast server can outrun the driver, which is written in Python too."""
HEADER = ("server", "loop", "requests/s", "CPU us/request", "p99 ms", "epoll_ctl/request")
ABSENT = "-"
UNUSABLE = "{} cannot be used: {}"
# Below this part of its CPU the driver or the machine, not the server, set the pace.
BUSY_PART = 0.85
# Pipes, libraries and the interpreter's own files.
SPARE_DESCRIPTORS = 64
OK, FAILED, INTERRUPTED = 0, 1, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the demo.

    Args:
        argv: The arguments after `demo`; those of this process if None.

    Returns:
        The exit status: 0, 1 if a server or an answer was wrong, 130 after Ctrl-C.
    """
    parser = _parser()
    options = parser.parse_args(argv)
    if options.serve is not None:
        return _serve(options.serve, _loop_to_serve_on(parser, options.loops))
    loops = _loops_at_hand(parser, options.loops)
    try:
        _make_room(options.connections + SPARE_DESCRIPTORS)
        return _compare(loops, options.connections, options.seconds)
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return INTERRUPTED
    except DemoFailed as exc:
        print(f"failed: {exc}", file=sys.stderr)
    except OSError as exc:
        print(f"failed: {_explain(exc)}", file=sys.stderr)
    return FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m eploop demo",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--seconds",
        type=_between(float, 0.1, 3600),
        default=3.0,
        help="how long each server is driven on each loop (default 3)",
    )
    parser.add_argument(
        "--connections",
        type=_between(int, 1, 20_000),
        default=40,
        metavar="N",
        help="how many connections the driver keeps busy (default 40)",
    )
    parser.add_argument(
        "--loops",
        type=_loop_names,
        metavar="A,B",
        help=f"what to compare, of {', '.join(NAMES)} (default: all that can be imported)",
    )
    parser.add_argument(
        "--serve",
        type=_between(int, 0, 65535),
        metavar="PORT",
        help="compare nothing; keep the HTTP server up on eploop until Ctrl-C (0: any free port)",
    )
    return parser


def _between(kind: type, low: float, high: float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        value = kind(text)
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text} is not between {low:g} and {high:g}")
        return value

    parse.__name__ = "number" if kind is float else "whole number"
    return parse


def _loop_names(text: str) -> list[str]:
    names = list(dict.fromkeys(filter(None, text.split(","))))
    for name in names:
        if name not in NAMES:
            raise argparse.ArgumentTypeError(
                f"no loop is called {name!r}; there are {', '.join(NAMES)}"
            )
    if not names:
        raise argparse.ArgumentTypeError("names no loop")
    return names


def _loops_at_hand(parser: argparse.ArgumentParser, wanted: list[str] | None) -> list[str]:
    """The loops to compare; one that is missing is an error only if it was asked for."""
    present = []
    for name in wanted or NAMES:
        reason = why_missing(name)
        if reason is None:
            present.append(name)
        elif wanted:
            parser.error(UNUSABLE.format(name, reason))
        else:
            print(f"{name} is left out: {reason}", file=sys.stderr)
    return present


def _loop_to_serve_on(parser: argparse.ArgumentParser, wanted: list[str] | None) -> str:
    if wanted is None:
        try:
            wanted = [EPLOOP_PREFIX + resolve_mode(None)]
        except ValueError as exc:
            parser.error(str(exc))
    if len(wanted) > 1:
        parser.error("--serve runs on one loop: name only one with --loops")
    reason = why_missing(wanted[0])
    if reason is not None:
        parser.error(UNUSABLE.format(wanted[0], reason))
    return wanted[0]


def _make_room(descriptors: int) -> None:
    """Raises the descriptor limit, here and for the servers, as far as needed and allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < descriptors:
        raise os_error_saying(errno.EMFILE, os.strerror(errno.EMFILE))
    if soft != resource.RLIM_INFINITY and soft < descriptors:
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, hard))


def _explain(exc: OSError, port: int | None = None) -> str:
    if exc.errno in (errno.EMFILE, errno.ENFILE):
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        return f"no free file descriptors (the limit is {hard}); use fewer --connections"
    if exc.errno == errno.EADDRINUSE and port is not None:
        return f"port {port} is already in use; choose another, or 0 for any free one"
    if exc.errno == errno.EACCES and port is not None:
        return f"port {port} needs privileges; choose one above 1023"
    return str(exc)


def _compare(loops: Sequence[str], connections: int, seconds: float) -> int:
    progress = Progress()
    try:
        lines = compare(loops, connections, seconds, progress.show)
    finally:
        progress.clear()
    print(aligned([HEADER, *map(_cells, lines)], left_columns=2))
    if any(line.figures.server_busy < BUSY_PART for line in lines):
        print(
            "\n~ the server had time to spare: the driver or the machine set this pace, "
            "compare the CPU time"
        )
    return OK


def _cells(line: Line) -> tuple[str, ...]:
    figures = line.figures
    calls = figures.epoll_ctl_calls
    return (
        line.server,
        line.loop,
        f"{'~' if figures.server_busy < BUSY_PART else ''}{figures.requests_per_s:,.0f}",
        f"{figures.cpu_us:.2f}",
        f"{figures.p99_ms:.2f}",
        ABSENT if calls is None else f"{calls:.2f}",
    )


def _serve(port: int, loop_name: str) -> int:
    def say(bound_port: int) -> None:
        print(f"An asyncio HTTP server is up on {loop_name}. In another terminal, type:\n")
        print(f"    curl http://127.0.0.1:{bound_port}/\n\nCtrl-C ends it.", flush=True)

    try:
        with asyncio.Runner(loop_factory=lambda: make_loop(loop_name)) as runner:
            runner.run(http_server.serve(port, say))
    except KeyboardInterrupt:
        print()
    except OSError as exc:
        print(f"failed: {_explain(exc, port)}", file=sys.stderr)
        return FAILED
    return OK
