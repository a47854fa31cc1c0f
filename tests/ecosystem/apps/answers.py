"""What the applications answer, whatever the server."""
import asyncio
import json
import os
import sys

PERIOD = bytes(range(251))      # prime, so that a lost or doubled block shows


def pattern(size):
    return (PERIOD * (size // len(PERIOD) + 1))[:size]


def loop_report():
    """The running loop, as JSON."""
    loop = asyncio.get_running_loop()
    eploop = sys.modules.get("eploop")
    return json.dumps({
        "type": f"{type(loop).__module__}.{type(loop).__qualname__}",
        "eploop": eploop is not None and type(loop) is eploop.Loop,
        "mode": getattr(loop, "mode", None),
        "pid": os.getpid(),
    }).encode()


def shut_down():
    """Say that the application's own shutdown ran; the tests look for it."""
    print("application shut down", flush=True)
