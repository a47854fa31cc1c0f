"""`python -m eploop demo`: the same two asyncio servers on every event loop at hand, side by side.

The servers (`echo_server`, `http_server`) are ordinary asyncio programs. `child` runs one of them
on one loop, `driver` keeps it busy from this process, `comparison` lets the loops take turns.
"""

from eploop.demo.cli import main

__all__ = ["main"]
