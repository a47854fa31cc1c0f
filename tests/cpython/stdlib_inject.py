"""Puts eploop in the place of asyncio's own loops, in the memory of this process.

Afterwards `asyncio.new_event_loop()`, `asyncio.run` and everything built on the default policy give
eploop, as do calls of `asyncio.SelectorEventLoop`, `asyncio.EventLoop` and `BaseEventLoop`. Classes
derived from those are still the stock ones: a test that makes its own loop gets what it wrote.
"""
import asyncio
import asyncio.base_events
import asyncio.unix_events


def stand_in(stock, make, loop_class):
    """A class that is `stock` to those who derive from it, and `make` to those who call it."""

    class Meta(type(stock)):
        def __call__(cls, *args, **kwargs):
            if cls is StandIn:
                return make(*args, **kwargs)
            return super().__call__(*args, **kwargs)

        def __instancecheck__(cls, instance):
            wanted = (stock, loop_class) if cls is StandIn else ()
            return isinstance(instance, wanted) or super().__instancecheck__(instance)

    StandIn = Meta(stock.__name__, (stock,), {"__module__": stock.__module__})
    return StandIn


def install(mode):
    """Have asyncio make eploop's loops in this mode."""
    import eploop

    def make(*args, **kwargs):
        for selector in (*args, *kwargs.values()):
            close = getattr(selector, "close", None)
            if close is not None:       # nobody else is going to
                close()
        return eploop.new_event_loop(mode=mode)

    unix_events, base_events = asyncio.unix_events, asyncio.base_events
    selector_loop = stand_in(unix_events._UnixSelectorEventLoop, make, eploop.Loop)
    asyncio.SelectorEventLoop = unix_events.SelectorEventLoop = selector_loop
    if hasattr(asyncio, "EventLoop"):
        asyncio.EventLoop = selector_loop
    if hasattr(unix_events, "EventLoop"):
        unix_events.EventLoop = selector_loop
    asyncio.BaseEventLoop = base_events.BaseEventLoop = stand_in(
        base_events.BaseEventLoop, make, eploop.Loop
    )
    for name in ("_UnixDefaultEventLoopPolicy", "_DefaultEventLoopPolicy"):
        policy = getattr(unix_events, name, None)
        if policy is not None:
            policy._loop_factory = staticmethod(make)
    if not hasattr(asyncio, "set_event_loop_policy"):
        asyncio.new_event_loop = asyncio.events.new_event_loop = make
