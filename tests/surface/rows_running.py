"""Running a loop, stopping it, closing it, and the ways to get one."""
import asyncio
import os
import threading
import time
import weakref

from support.waiting import soon, turns

from surface.checks import descriptors, equal, kind_of, raises
from surface.rows import subject

row = subject("Running the loop")


async def answer():
    await asyncio.sleep(0)
    return 42


@row("run_until_complete(future=coroutine), future, awaitable")
def run_until_complete(loop):
    equal(loop.run_until_complete(answer()), 42)
    future = loop.create_future()
    loop.call_soon(future.set_result, 7)
    equal(loop.run_until_complete(future), 7)


@row("run_until_complete() raises what the coroutine raised")
def run_until_complete_raises(loop):
    async def fails():
        raise LookupError("mine")

    with raises(LookupError):
        loop.run_until_complete(fails())


@row("run_until_complete() of a loop stopped too early is a RuntimeError")
def stopped_too_early(loop):
    loop.call_soon(loop.stop)
    with raises(RuntimeError):
        loop.run_until_complete(loop.create_future())


@row("run_forever() and stop(): the rest of the turn still runs")
def rest_of_the_turn(loop):
    ran = []

    def stop():
        ran.append("stop")
        loop.stop()
        loop.call_soon(ran.append, "next turn")

    loop.call_soon(stop)
    loop.call_soon(ran.append, "same turn")
    loop.run_forever()
    equal(ran, ["stop", "same turn"])
    loop.call_soon(loop.stop)
    loop.run_forever()
    equal(ran, ["stop", "same turn", "next turn"])


@row("stop() before run_forever() makes one turn")
def stop_first(loop):
    ran = []
    loop.call_soon(ran.append, 1)
    loop.stop()
    loop.run_forever()
    equal(ran, [1])


@row("is_running()")
def is_running(loop):
    async def ask():
        return loop.is_running()

    equal(loop.is_running(), False)
    equal(loop.run_until_complete(ask()), True)
    equal(loop.is_running(), False)


@row("is_closed() and close(), twice")
def is_closed(loop):
    equal(loop.is_closed(), False)
    loop.close()
    loop.close()
    equal(loop.is_closed(), True)


@row("a closed loop refuses work with RuntimeError")
def closed_loop(loop):
    loop.close()
    for method, arguments in (
        (loop.call_soon, (print,)), (loop.call_soon_threadsafe, (print,)),
        (loop.call_later, (1, print)), (loop.call_at, (1, print)),
        (loop.run_in_executor, (None, print)), (loop.run_forever, ()),
    ):
        with raises(RuntimeError):
            method(*arguments)


@row("running a loop inside another is a RuntimeError")
async def nested(loop, kind):
    other = kind.make()
    try:
        for inner in (loop, other):
            with raises(RuntimeError):
                inner.run_forever()
    finally:
        other.close()


@row("closing a running loop is a RuntimeError")
async def close_while_running(loop):
    with raises(RuntimeError):
        loop.close()
    await asyncio.sleep(0)


@row("get_debug(), set_debug(enabled=)")
def debug(loop):
    for enabled in (True, False):
        loop.set_debug(enabled)
        equal(loop.get_debug(), enabled)


@row("shutdown_asyncgens() closes generators that were left in the middle")
def shutdown_asyncgens(loop):
    closed = []

    async def generator():
        try:
            yield 1
            yield 2
        finally:
            closed.append(True)

    left = generator()

    async def begin():
        equal(await anext(left), 1)

    loop.run_until_complete(begin())
    equal(closed, [])
    loop.run_until_complete(loop.shutdown_asyncgens())
    equal(closed, [True])


@row("asyncio.Runner(loop_factory=)")
def runner(kind):
    with asyncio.Runner(loop_factory=kind.make) as runner:
        equal(type(runner.get_loop()), kind.loop_class)
        equal(runner.run(answer()), 42)


@row("asyncio.Runner(debug=True) reaches the loop")
def runner_debug(kind):
    async def ask():
        return asyncio.get_running_loop().get_debug()

    with asyncio.Runner(loop_factory=kind.make, debug=True) as runner:
        equal(runner.run(ask()), True)


@row("asyncio.run(loop_factory=)", python=(3, 12))
def run_factory(kind):
    equal(asyncio.run(answer(), loop_factory=kind.make), 42)


@row("run() of the package")
def package_run(kind):
    equal(kind.run(answer()), 42)


@row("an event-loop policy")
def policy(kind):
    if not hasattr(asyncio, "DefaultEventLoopPolicy"):
        return
    policy = kind.policy()
    kind_of(policy, asyncio.AbstractEventLoopPolicy)
    loop = policy.new_event_loop()
    try:
        equal(type(loop), kind.loop_class)
    finally:
        loop.close()


@row("one loop in each of four threads")
def many_threads(kind):
    results = []

    def run():
        loop = kind.make()
        try:
            results.append(loop.run_until_complete(answer()))
        finally:
            loop.close()

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    equal(results, [42] * 4)


@row("a new loop in a forked child")
async def forked(loop, kind):
    await turns()
    # Python warns of other threads; there are none of ours.
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            asyncio._set_running_loop(None)
            other = kind.make()
            code = 0 if other.run_until_complete(answer()) == 42 else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    equal(os.waitstatus_to_exitcode(status), 0, "exit code of the child")
    await soon(asyncio.sleep(0.01))


@row("weak references and attributes of one's own")
def attributes(loop):
    assert weakref.ref(loop)() is loop, "no weak reference"
    loop.mine = 1
    equal(loop.mine, 1)


@row("is an asyncio.AbstractEventLoop and BaseEventLoop")
def base_class(loop):
    kind_of(loop, asyncio.AbstractEventLoop)
    kind_of(loop, asyncio.BaseEventLoop)


@row("no descriptor is left open after close()")
def no_descriptor(kind):
    def use():
        loop = kind.make()
        loop.run_until_complete(asyncio.sleep(0.001))
        loop.close()

    use()       # what is there once for the whole process is no leak
    before = descriptors()
    for _ in range(5):
        use()
    equal(descriptors(), before)


@row("no io_uring")
def no_io_uring(loop):
    loop.run_until_complete(asyncio.sleep(0.001))
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            continue
        assert "io_uring" not in target, "the loop holds a ring"


@row("an idle loop has no threads of its own and at most 4 descriptors")
def frugal(kind):
    before, threads = descriptors(), os.listdir("/proc/self/task")
    loop = kind.make()
    try:
        loop.run_until_complete(asyncio.sleep(0.001))
        equal(os.listdir("/proc/self/task"), threads, "threads")
        assert descriptors() - before <= 4, f"{descriptors() - before} descriptors"
    finally:
        loop.close()


@row("an idle loop uses no processor time")
def idle(loop):
    began = time.process_time()
    loop.run_until_complete(asyncio.sleep(0.1))
    took = time.process_time() - began
    assert took < 0.03, f"{took:.3f} s of 0.1 s"


@row("load and lag: statistics()")
def statistics(loop):
    loop.run_until_complete(answer())
    found = loop.statistics()
    assert found.turns > 0 and found.callbacks > 0, found
    assert sum(found.turn_time_histogram) > 0, found
