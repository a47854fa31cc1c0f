"""Puts the loop under test in the place of others, in every Python that a suite starts.

The folder of this file is on PYTHONPATH of the suite's processes, hence of those they start.
"""
import os
import sys


def install(mode, stand_in):
    if mode == "asyncio":
        if stand_in:
            sys.modules["uvloop"] = asyncio_as_uvloop()
    else:
        from eploop import launch

        launch.install()
    if stand_in:
        # The suite's helpers are a submodule of uvloop, in Python.
        sys.modules["uvloop"].__path__ = [stand_in]


def asyncio_as_uvloop():
    """A module with uvloop's public names, on asyncio's own loop."""
    import asyncio
    import types

    def run(main, *, loop_factory=asyncio.SelectorEventLoop, debug=None):
        with asyncio.Runner(loop_factory=loop_factory, debug=debug) as runner:
            return runner.run(main)

    module = types.ModuleType("uvloop", "Stands in for uvloop.")
    module.Loop = asyncio.SelectorEventLoop
    module.new_event_loop = asyncio.SelectorEventLoop
    module.run = run
    module.install = lambda: None
    if sys.version_info < (3, 14):
        module.EventLoopPolicy = asyncio.DefaultEventLoopPolicy
    return module


if "EPLOOP_SUITES_MODE" in os.environ:
    try:
        install(os.environ["EPLOOP_SUITES_MODE"], os.environ.get("EPLOOP_SUITES_STAND_IN"))
    except BaseException:
        import traceback

        # The interpreter would go on without us, and the suite run on another loop.
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(70)
