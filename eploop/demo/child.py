"""The server process: `python -m eploop.demo.child LOOP echo|http`.

It runs an unchanged server on the loop of that name, prints its port, and answers each line on
stdin with one line of JSON: what the process has used so far. The end of stdin is the order to
leave, so it goes even if the process that started it was killed.
"""

import asyncio
import json
import os
import sys
import time
from types import ModuleType
from typing import Any

from eploop.demo import echo_server, http_server
from eploop.demo.contenders import make_loop

SERVERS: dict[str, ModuleType] = {"echo": echo_server, "http": http_server}


class Reporter:
    """Answers on stdout what is asked on stdin, and counts the server's unhandled errors."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.left = asyncio.Event()
        self._loop = loop
        self._errors = 0
        loop.set_exception_handler(self._on_error)
        loop.add_reader(sys.stdin.fileno(), self._on_readable)

    def say(self, answer: dict[str, Any]) -> None:
        """Writes one line of JSON."""
        os.write(sys.stdout.fileno(), json.dumps(answer).encode() + b"\n")

    def close(self) -> None:
        """Stops to listen on stdin."""
        self._loop.remove_reader(sys.stdin.fileno())

    def _on_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._errors += 1
        loop.default_exception_handler(context)

    def _on_readable(self) -> None:
        lines = os.read(sys.stdin.fileno(), 4096)
        if not lines:
            self.left.set()
        for _ in range(lines.count(b"\n")):
            self.say(
                {
                    "cpu_ns": time.process_time_ns(),
                    "epoll_ctl_calls": self._epoll_ctl_calls(),
                    "errors": self._errors,
                }
            )

    def _epoll_ctl_calls(self) -> int | None:
        read_statistics = getattr(self._loop, "statistics", None)
        return read_statistics().epoll_ctl_calls if read_statistics else None


async def serve(server_name: str) -> None:
    """Serves until the end of stdin."""
    reporter = Reporter(asyncio.get_running_loop())
    server = await SERVERS[server_name].start("127.0.0.1", 0)
    reporter.say({"port": server.sockets[0].getsockname()[1]})
    await reporter.left.wait()
    reporter.close()
    server.close()


def main(loop_name: str, server_name: str, cpu: str | None = None) -> None:
    """Runs the server process, on one CPU if told so."""
    if cpu is not None:
        os.sched_setaffinity(0, {int(cpu)})
    with asyncio.Runner(loop_factory=lambda: make_loop(loop_name)) as runner:
        runner.run(serve(server_name))


if __name__ == "__main__":
    main(*sys.argv[1:])
