"""Runs any asyncio program on eploop without a changed line: the work behind `python -m eploop`.

`install` changes the process, once and for good: every way in which a program asks asyncio (or
uvloop) for a new event loop gives an eploop loop, here and in the processes that multiprocessing
starts from here. `main` is the command line; it installs eploop and then becomes the program.
"""
import argparse
import asyncio
import builtins
import dataclasses
import importlib
import importlib.machinery
import io
import os
import pkgutil
import runpy
import sys
import types
from collections.abc import Sequence

import eploop
from eploop.options import MODES, resolve_mode

# The release of uvloop whose public names the stand-in offers; programs compare this number.
UVLOOP_NAMES_OF = "0.23.0"

USAGE = """\
python -m eploop [--mode MODE] [--stats] script.py [args ...]
       python -m eploop [--mode MODE] [--stats] -m module [args ...]
       python -m eploop [--mode MODE] [--stats] demo [args ...]"""
EPILOG = """\
The script may also be a folder or a zip file with a __main__.py, or - for standard input.
A script file called demo is run as ./demo."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `python -m eploop`.

    The program runs as by `python script.py` or `python -m module`: same `sys.argv`, `sys.path`,
    `__main__` module and exit code. Children keep the mode through the environment.

    Args:
        argv: The arguments after `python -m eploop`; those of this process if None.

    Returns:
        The exit code for a program that ends by itself.

    Raises:
        SystemExit: The program ended that way, or (code 2) the command line is wrong.
    """
    parser = _parser()
    own, program = _split(sys.argv[1:] if argv is None else argv)
    options = parser.parse_args(own)
    if not program:
        parser.error("nothing to run: name a script, or -m and a module, or demo")
    try:
        mode = resolve_mode(options.mode)
    except ValueError as exc:
        parser.error(str(exc))
    if options.mode:
        os.environ["EPLOOP_MODE"] = mode
    if program[0] == "demo":
        # The demo compares loops, so it must still find asyncio's own: nothing is installed.
        if options.stats:
            print_statistics_at_close()
        return importlib.import_module("eploop.demo").main(program[1:])
    if program[0] == "-m" and len(program) == 1:
        parser.error("-m: a module name must follow")
    if program[0] not in ("-m", "-") and not os.path.exists(program[0]):
        parser.error(
            f"can't open file {os.path.abspath(program[0])!r}: no such file"
            " (to run an installed module, write -m before its name)"
        )
    install(options.stats)
    if program[0] == "-m":
        run_module(program[1], program[2:])
    else:
        run_script(program[0], program[1:])
    return 0


def install(stats: bool = False) -> None:
    """Make this process and its multiprocessing children run asyncio on eploop.

    Besides the event-loop policy this redirects direct calls of `asyncio.SelectorEventLoop` and
    `asyncio.EventLoop`, and puts a stand-in for uvloop into `sys.modules`. Not to be undone; a
    second call does nothing. A library should use `eploop.loop_factory` or `eploop.run` instead.

    Args:
        stats: Print the statistics of each loop to standard error when it is closed.
    """
    if getattr(sys.modules.get("uvloop"), "__eploop__", False):
        return
    if sys.version_info < (3, 14):
        # From 3.14 on setting a policy warns, and the default policy calls the redirected class.
        asyncio.set_event_loop_policy(eploop.EventLoopPolicy())
    _redirect_direct_calls()
    uvloop = uvloop_stand_in()
    sys.modules["uvloop"] = uvloop
    sys.modules["uvloop.loop"] = uvloop.loop
    _install_in_children(stats)
    if stats:
        print_statistics_at_close()


def run_script(path: str, args: Sequence[str]) -> None:
    """Run a Python file as `python path args...` does.

    Args:
        path: A source or `.pyc` file, a folder or zip file with a `__main__.py`, or `-` for
            standard input.
        args: What follows in `sys.argv`.
    """
    main_module = _fresh_main()
    sys.argv = [path, *args]
    if path == "-":
        _set_first_path("")
        code = compile(sys.stdin.buffer.read(), "<stdin>", "exec")
    elif pkgutil.get_importer(path) is not None:
        # The interpreter inserts this one even under -P: __main__ is imported from it.
        first = slice(0, 0 if sys.flags.safe_path else 1)
        sys.path[first] = [os.path.abspath(path)]
        runpy._run_module_as_main("__main__", alter_argv=False)
        return
    else:
        _set_first_path(os.path.dirname(os.path.realpath(path)))
        filename = os.path.abspath(path)
        code, main_module.__loader__ = _load(filename)
        main_module.__file__ = filename
        main_module.__cached__ = None
    exec(code, main_module.__dict__)


def run_module(name: str, args: Sequence[str]) -> None:
    """Run a module or package as `python -m name args...` does.

    Args:
        name: The module's dotted name.
        args: What follows in `sys.argv`.
    """
    _fresh_main()
    sys.argv = ["-m", *args]
    # The function that the interpreter itself calls for -m. The public runpy.run_module takes
    # its __main__ away again on return, while threads and exit handlers may still need it.
    runpy._run_module_as_main(name)


def uvloop_stand_in() -> types.ModuleType:
    """Make a module with the public names of uvloop, on eploop.

    Returns:
        A module with `new_event_loop`, `run`, `install`, `EventLoopPolicy`, `Loop` and `loop`,
        ready to be put into `sys.modules`.
    """

    def run(main, *, loop_factory=eploop.new_event_loop, debug=None, **options):
        with asyncio.Runner(loop_factory=loop_factory, debug=debug, **options) as runner:
            return runner.run(main)

    def lazily(name):
        # Only on access, as eploop does: policies are deprecated, and then gone.
        if name in ("install", "EventLoopPolicy"):
            return getattr(eploop, name)
        raise AttributeError(f"module 'uvloop' (eploop's stand-in) has no attribute {name!r}")

    module = _bare_module("uvloop", "Stands in for uvloop while a program runs on eploop.")
    module.__dict__.update(
        __all__=("new_event_loop", "run", "install", "EventLoopPolicy"),
        __eploop__=True,
        __getattr__=lazily,
        __path__=[],
        __version__=f"{UVLOOP_NAMES_OF}+eploop.{eploop.__version__}",
        Loop=eploop.Loop,
        loop=_bare_module("uvloop.loop", "Stands in for uvloop.loop."),
        new_event_loop=eploop.new_event_loop,
        run=run,
    )
    module.loop.Loop = eploop.Loop
    return module


def print_statistics_at_close() -> None:
    """Have each loop print its statistics to standard error when it is closed."""
    close = eploop.Loop.close

    def close_and_print(self):
        if self.is_closed():
            return close(self)
        mode, statistics = self.mode, self.statistics()
        close(self)
        # One write, so that the reports of several processes do not mix.
        sys.stderr.write(_report(mode, statistics))
        return None

    eploop.Loop.close = close_and_print


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m eploop",
        usage=USAGE,
        description="Run an asyncio program on the eploop event loop.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--mode",
        help=f"how the loop uses epoll: {', '.join(MODES)} (default: EPLOOP_MODE, else edge)",
    )
    parser.add_argument(
        "--stats",
        action="store_true",
        help="print the statistics of each loop to standard error when it is closed",
    )
    parser.add_argument("--version", action="version", version=f"eploop {eploop.__version__}")
    return parser


def _split(argv):
    """Part the launcher's own options from the program and its arguments.

    Not left to argparse: from the program's name on, everything belongs to the program.
    """
    i = 0
    while i < len(argv) and argv[i].startswith("-") and argv[i] not in ("-", "--"):
        if argv[i].startswith("-m"):
            attached = argv[i][2:]
            return argv[:i], ["-m", *([attached] if attached else []), *argv[i + 1 :]]
        i += 2 if argv[i] == "--mode" else 1
    return argv[:i], argv[i + 1 :] if argv[i : i + 1] == ["--"] else argv[i:]


def _redirect_direct_calls():
    """Let `asyncio.SelectorEventLoop()` make an eploop loop; its subclasses stay what they are.

    `__new__` and not another class under the same name: identity, `isinstance` and subclassing
    keep working, and names bound before (`from asyncio import SelectorEventLoop`) are caught too.
    """
    stock = asyncio.SelectorEventLoop  # asyncio.EventLoop, where it exists, is the same class

    def new(cls, *args, **kwargs):
        if cls is stock and all(value is None for value in (*args, *kwargs.values())):
            # Not an instance of cls, so type.__call__ leaves out __init__.
            return eploop.new_event_loop()
        return object.__new__(cls)

    stock.__new__ = staticmethod(new)


class _InstallInChild:
    """Installs eploop in the process that unpickles it."""

    def __init__(self, stats):
        self._stats = stats

    def __reduce__(self):
        return install, (self._stats,)


def _install_in_children(stats):
    """Hand eploop on to spawn and forkserver children; forked ones inherit it.

    Both start methods pickle the preparation data first, so the child is ready before the
    program's main module and the process object are loaded.
    """
    from multiprocessing import spawn

    get_preparation_data = spawn.get_preparation_data

    def with_eploop(name):
        return get_preparation_data(name) | {"eploop": _InstallInChild(stats)}

    spawn.get_preparation_data = with_eploop


def _fresh_main():
    """Put an empty `__main__` module in the place of the launcher's."""
    module = types.ModuleType("__main__")
    module.__builtins__ = builtins
    if sys.version_info < (3, 14):
        module.__annotations__ = {}
    sys.modules["__main__"] = module
    return module


def _set_first_path(folder):
    """Replace what `python -m eploop` put first into `sys.path` (nothing under -P and -I)."""
    if not sys.flags.safe_path:
        sys.path[0] = folder


def _load(filename):
    if filename.endswith(".pyc"):
        loader = importlib.machinery.SourcelessFileLoader("__main__", filename)
        return loader.get_code("__main__"), loader
    with io.open_code(filename) as file:
        code = compile(file.read(), filename, "exec")
    return code, importlib.machinery.SourceFileLoader("__main__", filename)


def _bare_module(name, doc):
    module = types.ModuleType(name, doc)
    # importlib.util.find_spec raises on a module without a spec.
    module.__spec__ = importlib.machinery.ModuleSpec(name, None, origin="eploop")
    return module


def _report(mode, statistics):
    names = [field.name for field in dataclasses.fields(statistics)]
    width = max(map(len, names))
    lines = [f"  {name:<{width}}  {_shown(getattr(statistics, name))}\n" for name in names]
    return f"eploop statistics: mode {mode}, process {os.getpid()}\n{''.join(lines)}"


def _shown(value):
    """A counter as it is; of a histogram over powers of two the entries that are not 0."""
    if isinstance(value, tuple):
        return "  ".join(f"{2**i}: {count}" for i, count in enumerate(value) if count) or "-"
    return value
