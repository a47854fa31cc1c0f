"""Waiting for something without guessing how long it takes."""
import asyncio
import contextlib
import threading
import time

PATIENCE_S = 10.0       # only a test that is going to fail waits for so long
POLL_S = 0.001
MANY_POLLS = 20         # a loop that spins makes thousands


async def until(condition, what="the condition"):
    """Let the loop run until `condition()` is true."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        await asyncio.sleep(POLL_S)


async def soon(awaitable):
    """Await something that may take a while on a busy machine, but not for ever."""
    return await asyncio.wait_for(awaitable, PATIENCE_S)


async def turns(count=3):
    """Let the loop go round a few times: what is due now has happened afterwards."""
    for _ in range(count):
        await asyncio.sleep(0)


async def quiet():
    """Let pass what the kernel may still have in hand, to show that nothing comes."""
    await asyncio.sleep(0.02)


@contextlib.contextmanager
def in_thread(function, *args):
    """Run a function in a thread, and raise here what it raised."""
    failures = []

    def run():
        try:
            function(*args)
        except BaseException as exc:
            failures.append(exc)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield thread
    finally:
        thread.join(PATIENCE_S)
    assert not thread.is_alive(), "the thread does not end"
    if failures:
        raise failures[0]


async def is_idle(loop, seconds=0.1):
    """Let the loop be for a while; whether it slept, and was not woken over and over."""
    if hasattr(loop, "statistics"):
        before = loop.statistics().polls
        await asyncio.sleep(seconds)
        return loop.statistics().polls - before < MANY_POLLS
    selector, select, polls = loop._selector, loop._selector.select, []

    def counting(timeout):
        polls.append(timeout)
        return select(timeout)

    selector.select = counting
    try:
        await asyncio.sleep(seconds)
    finally:
        del selector.select
    return len(polls) < MANY_POLLS
