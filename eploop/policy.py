"""Ways to get a loop: the factories, run(), and the policy where asyncio still has policies."""

import asyncio
import functools

from eploop.loop import Loop
from eploop.options import resolve_mode


def new_event_loop(mode=None, **options):
    """A new event loop, not yet running.

    Args:
        mode: "edge", "oneshot", "level", or None for the environment variable EPLOOP_MODE, else
            "edge".
        **options: See `Loop`.

    Raises:
        ValueError: An unknown mode, or an option out of range.
    """
    return Loop(mode, **options)


def loop_factory(mode=None, **options):
    """A callable that makes loops, for asyncio.Runner, asyncio.run and servers.

    Args:
        mode: As for `new_event_loop`; a wrong one raises here, not at the first loop.
        **options: See `Loop`.

    Raises:
        ValueError: An unknown mode.
    """
    return functools.partial(new_event_loop, resolve_mode(mode), **options)


def run(main, *, debug=None, mode=None, **loop_options):
    """Run a coroutine on a new eploop loop; otherwise as asyncio.run.

    Args:
        main: The coroutine.
        debug: asyncio's debug mode; None keeps the default.
        mode: As for `new_event_loop`.
        **loop_options: See `Loop`.

    Returns:
        What the coroutine returns.

    Raises:
        RuntimeError: Another loop runs in this thread.
        ValueError: `main` is no coroutine, or the mode is unknown.
    """
    factory = loop_factory(mode, **loop_options)
    if asyncio._get_running_loop() is not None:
        raise RuntimeError("eploop.run() cannot be called from a running event loop")
    with asyncio.Runner(debug=debug, loop_factory=factory) as runner:
        return runner.run(main)


def make_policy_class():
    """The class EventLoopPolicy.

    Made at the first access: where policies are deprecated (3.14) asyncio's own warning then comes
    to those who use one, and where there are none (3.16) importing eploop still works.

    Raises:
        AttributeError: This asyncio has no policies.
    """

    class EventLoopPolicy(asyncio.DefaultEventLoopPolicy):
        """An asyncio policy whose loops are eploop's.

        Args:
            mode: As for `new_event_loop`.
            **options: See `Loop`.

        Raises:
            ValueError: An unknown mode.
        """

        def __init__(self, mode=None, **options):
            super().__init__()
            self._loop_factory = loop_factory(mode, **options)

    EventLoopPolicy.__module__ = "eploop"
    EventLoopPolicy.__qualname__ = "EventLoopPolicy"
    return EventLoopPolicy


def install(mode=None, **options):
    """Make eploop the default of asyncio.run() and asyncio.new_event_loop().

    Raises:
        AttributeError: This asyncio has no policies; use `run` or `loop_factory`.
        ValueError: An unknown mode.
    """
    import eploop

    asyncio.set_event_loop_policy(eploop.EventLoopPolicy(mode, **options))
