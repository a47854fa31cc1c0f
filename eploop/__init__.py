"""eploop: a fast asyncio event loop for Linux that talks to epoll directly.

    eploop.run(main())                                          # instead of asyncio.run
    asyncio.Runner(loop_factory=eploop.new_event_loop)
    asyncio.set_event_loop_policy(eploop.EventLoopPolicy())     # or eploop.install()
    python -m eploop app.py                                     # an unchanged program
"""

import asyncio

from eploop._version import __version__
from eploop.loop import Loop
from eploop.policy import install, loop_factory, make_policy_class, new_event_loop, run
from eploop.statistics import Statistics

__all__ = [
    "Loop",
    "Statistics",
    "__version__",
    "install",
    "loop_factory",
    "new_event_loop",
    "run",
]

if hasattr(asyncio, "AbstractEventLoopPolicy"):
    __all__ += ["EventLoopPolicy"]


def __getattr__(name):
    if name == "EventLoopPolicy" and name in __all__:
        cls = globals()[name] = make_policy_class()
        return cls
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
