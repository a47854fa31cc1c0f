"""Micro workloads of tasks and timers: what asyncio's own primitives cost on a loop."""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial

Run = Callable[[asyncio.AbstractEventLoop, int], None]

BATCH = 1000
GATHERED = 100
TIMEOUT_S = 60.0


def sleep0(loop: asyncio.AbstractEventLoop, ops: int) -> None:
    """One task that gives way again and again."""

    async def main() -> None:
        for _ in range(ops):
            await asyncio.sleep(0)

    loop.run_until_complete(main())


def future_wakeup(loop: asyncio.AbstractEventLoop, ops: int) -> None:
    """A task that waits for a future which a callback completes."""

    async def main() -> None:
        for _ in range(ops):
            future = loop.create_future()
            loop.call_soon(future.set_result, None)
            await future

    loop.run_until_complete(main())


async def _nothing() -> None:
    pass


def create_task(loop: asyncio.AbstractEventLoop, ops: int) -> None:
    """A task made and awaited."""

    async def main() -> None:
        for _ in range(ops):
            await loop.create_task(_nothing())

    loop.run_until_complete(main())


def gather(loop: asyncio.AbstractEventLoop, ops: int) -> None:
    """100 coroutines gathered; an operation is one of them."""

    async def main() -> None:
        for _ in range(ops // GATHERED):
            await asyncio.gather(*(_nothing() for _ in range(GATHERED)))

    loop.run_until_complete(main())


def queue_ping_pong(loop: asyncio.AbstractEventLoop, ops: int) -> None:
    """Two tasks and two queues: an item goes there and back."""

    async def answer(requests: asyncio.Queue[int], answers: asyncio.Queue[int]) -> None:
        for _ in range(ops):
            answers.put_nowait(await requests.get())

    async def main() -> None:
        requests: asyncio.Queue[int] = asyncio.Queue()
        answers: asyncio.Queue[int] = asyncio.Queue()
        answering = loop.create_task(answer(requests, answers))
        for i in range(ops):
            requests.put_nowait(i)
            await answers.get()
        await answering

    loop.run_until_complete(main())


def timeout(loop: asyncio.AbstractEventLoop, ops: int) -> None:
    """`async with asyncio.timeout` around a turn of the loop."""

    async def main() -> None:
        for _ in range(ops):
            async with asyncio.timeout(TIMEOUT_S):
                await asyncio.sleep(0)

    loop.run_until_complete(main())


def wait_for(loop: asyncio.AbstractEventLoop, ops: int) -> None:
    """asyncio.wait_for a coroutine that takes a turn of the loop."""

    async def main() -> None:
        for _ in range(ops):
            await asyncio.wait_for(asyncio.sleep(0), TIMEOUT_S)

    loop.run_until_complete(main())


def timer_cancel(pending_timers: int, loop: asyncio.AbstractEventLoop, ops: int) -> None:
    """A timeout set and the oldest one cancelled, with many pending: what a busy server does."""

    def nothing() -> None:
        pass

    pending = deque(loop.call_later(TIMEOUT_S, nothing) for _ in range(pending_timers))

    def replace() -> None:
        nonlocal ops
        for _ in range(BATCH):
            pending.popleft().cancel()
            pending.append(loop.call_later(TIMEOUT_S, nothing))
        ops -= BATCH
        loop.call_soon(replace if ops > 0 else loop.stop)

    loop.call_soon(replace)
    loop.run_forever()
    for timer in pending:
        timer.cancel()


def timer_expiry(pending_timers: int, loop: asyncio.AbstractEventLoop, ops: int) -> None:
    """Timers that are due, set and run by the thousand, with many pending ones beside them."""

    def nothing() -> None:
        pass

    pending = [loop.call_later(TIMEOUT_S, nothing) for _ in range(pending_timers)]

    def expire() -> None:
        nonlocal ops
        now = loop.time()
        for i in range(BATCH):
            loop.call_at(now - i * 1e-6, nothing)
        ops -= BATCH
        loop.call_soon(expire if ops > 0 else loop.stop)

    loop.call_soon(expire)
    loop.run_forever()
    for timer in pending:
        timer.cancel()


RUNS: dict[str, tuple[Run, str]] = {
    "sleep0": (sleep0, "one task awaiting asyncio.sleep(0)"),
    "future-wakeup": (future_wakeup, "a future completed by a callback and awaited by a task"),
    "create-task": (create_task, "create_task and await it"),
    "gather-100": (gather, "gather of 100 coroutines, per coroutine"),
    "queue-ping-pong": (queue_ping_pong, "an item through two queues and back"),
    "timeout": (timeout, "asyncio.timeout around a turn"),
    "wait-for": (wait_for, "asyncio.wait_for a turn"),
    "timer-cancel-1e3": (
        partial(timer_cancel, 1000),
        "call_later and cancel the oldest, 1000 pending",
    ),
    "timer-cancel-1e5": (
        partial(timer_cancel, 100_000),
        "call_later and cancel the oldest, 100 000 pending",
    ),
    "timer-expiry-1e3": (partial(timer_expiry, 1000), "call_at now and run, 1000 pending"),
    "timer-expiry-1e5": (partial(timer_expiry, 100_000), "call_at now and run, 100 000 pending"),
}
