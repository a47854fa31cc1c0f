"""Load on each server: connections that ask as fast as they are answered, for a while.

`python tests/ecosystem/load.py` takes every server, without and with TLS, in each mode: requests
(for websockets: messages) per second and errors, one line each. Exit code 1 if there was any error
or a server did not end well. Not part of the test suite. The figures say that the server keeps up,
not how fast it is: the client has the same processors, and unless `wrk` is found it is a Python
program.
"""
import argparse
import asyncio
import re
import shutil
import subprocess
import sys
import time

from harness.clients import check_loop, client_context
from harness.servers import MODES, SERVERS, Launch, Server

REQUEST = b"GET /download?size=100 HTTP/1.1\r\nHost: localhost\r\n\r\n"
MESSAGE = b"x" * 100
# Each must be answered before the next; a slower server is an error.
ANSWER_S = 10.0


def main(argv=None):
    """Run the loads that the command line asks for; give the exit code."""
    options = arguments(argv)
    wrk = None if options.no_wrk else shutil.which("wrk")
    print(f"{options.connections} connections, {options.seconds:g} s each, "
          f"client: {wrk or 'Python on asyncio'}")
    failed = 0
    for server in options.servers:
        for tls in (False, True):
            for loop in options.loops:
                way = "stock" if loop == "asyncio" else options.way
                launch = Launch(server, way, loop, tls)
                failed += not one_load(launch, options, wrk)
    print(f"{failed} failed" if failed else "no errors")
    return 1 if failed else 0


def arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = {"type": lambda text: text.split(","), "metavar": "A,B"}
    parser.add_argument("--servers", default=SERVERS, help=", ".join(SERVERS), **names)
    parser.add_argument("--loops", default=MODES, help=f"asyncio, {', '.join(MODES)}", **names)
    parser.add_argument("--way", default="module", choices=["factory", "policy", "module"])
    parser.add_argument("--connections", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--no-wrk", action="store_true", help="use the Python client")
    return parser.parse_args(argv)


def one_load(launch, options, wrk):
    """Load one server and print its line; whether all went well."""
    try:
        with Server(launch) as server:
            check_loop(server)
            if launch.server == "websockets":
                count, errors = asyncio.run(drive(server, options, echo_messages))
            elif wrk:
                count, errors = run_wrk(wrk, server, options)
            else:
                count, errors = asyncio.run(drive(server, options, ask))
    except (AssertionError, OSError) as exc:
        print(f"{launch!s:<34} FAILED: {exc}", flush=True)
        return False
    total = sum(errors.values())
    kinds = "".join(f"\n    {number} x {text}" for text, number in errors.items())
    print(f"{launch!s:<34} {count / options.seconds:>9,.0f}/s  {total} errors{kinds}", flush=True)
    return not total and count > 0


def run_wrk(wrk, server, options):
    """Answers and errors as wrk counted them."""
    done = subprocess.run(
        [wrk, "-t1", f"-c{options.connections}", f"-d{max(1, round(options.seconds))}s",
         f"{server.url}/download?size=100"],
        capture_output=True,
        text=True,
        check=True,
    )
    count = int(re.search(r"(\d+) requests in", done.stdout)[1])
    errors = {}
    if found := re.search(r"Socket errors: .*", done.stdout):
        errors[found[0]] = sum(map(int, re.findall(r"\d+", found[0])))
    if found := re.search(r"Non-2xx or 3xx responses: (\d+)", done.stdout):
        errors["answers that are no success"] = int(found[1])
    return count, errors


async def drive(server, options, work):
    """Run `work` on many connections until the time is over; count answers and errors."""
    counts, errors = [0] * options.connections, {}
    context = client_context() if server.launch.tls else None
    until = time.monotonic() + options.seconds

    async def client(i):
        def answered():
            counts[i] += 1
            return time.monotonic() < until

        try:
            await work(server, context, answered)
        except Exception as exc:
            text = f"{type(exc).__name__}: {exc}"
            errors[text] = errors.get(text, 0) + 1

    await asyncio.gather(*map(client, range(options.connections)))
    return sum(counts), errors


async def ask(server, context, answered):
    """HTTP requests over one connection, each after the answer to the last."""
    reader, writer = await asyncio.open_connection(
        *server.address, ssl=context, server_hostname="localhost" if context else None
    )
    try:
        more = True
        while more:
            writer.write(REQUEST)
            async with asyncio.timeout(ANSWER_S):
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(re.search(rb"(?i)content-length: *(\d+)", head)[1])
                await reader.readexactly(length)
            if not head.startswith(b"HTTP/1.1 200 "):
                raise ValueError(head.partition(b"\r\n")[0].decode())
            more = answered()
    finally:
        writer.close()


async def echo_messages(server, context, answered):
    """WebSocket messages over one connection, each after the echo of the last."""
    from websockets.asyncio.client import connect

    async with connect(
        server.websocket_url, ssl=context, proxy=None, compression=None
    ) as connection:
        more = True
        while more:
            await connection.send(MESSAGE)
            async with asyncio.timeout(ANSWER_S):
                if await connection.recv() != MESSAGE:
                    raise ValueError("another message than was sent")
            more = answered()


if __name__ == "__main__":
    sys.exit(main())
