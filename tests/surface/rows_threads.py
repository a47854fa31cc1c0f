"""Executors, and coroutines from other threads."""
import asyncio
import threading
import time
import warnings
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

from support.waiting import soon

from surface.checks import equal, raises
from surface.rows import subject

row = subject("Executors and threads")


def where(*args):
    return threading.current_thread().name, args


@row("run_in_executor(executor=None, func=, *args=)")
async def run_in_executor(loop):
    name, args = await soon(loop.run_in_executor(None, where, 1, 2))
    equal(args, (1, 2))
    assert name != threading.current_thread().name, "in the loop's thread"


@row("run_in_executor() passes exceptions on")
async def exception(loop):
    with raises(ZeroDivisionError):
        await soon(loop.run_in_executor(None, divmod, 1, 0))


@row("run_in_executor(executor=)")
async def given_executor(loop):
    with ThreadPoolExecutor(1, thread_name_prefix="mine") as executor:
        name, _ = await soon(loop.run_in_executor(executor, where))
    assert name.startswith("mine"), name


@row("set_default_executor(executor=)")
async def default_executor(loop):
    loop.set_default_executor(ThreadPoolExecutor(1, thread_name_prefix="mine"))
    name, _ = await soon(loop.run_in_executor(None, where))
    assert name.startswith("mine"), name
    equal(await soon(asyncio.to_thread(int, "3")), 3)


@row("set_default_executor() refuses other executors")
async def wrong_executor(loop):
    with raises(TypeError):
        loop.set_default_executor("no executor")
    executor = ProcessPoolExecutor(1)
    try:
        with raises(TypeError):
            loop.set_default_executor(executor)
    finally:
        executor.shutdown()


@row("shutdown_default_executor() waits for its threads")
async def shutdown(loop):
    ended = []

    def work():
        time.sleep(0.05)
        ended.append(True)

    job = loop.run_in_executor(None, work)
    await soon(loop.shutdown_default_executor())
    equal(ended, [True])
    await job
    with raises(RuntimeError):
        loop.run_in_executor(None, work)


@row("shutdown_default_executor(timeout=) gives up, with a warning")
async def shutdown_timeout(loop):
    release = threading.Event()
    job = loop.run_in_executor(None, release.wait, 3)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            began = time.monotonic()
            await loop.shutdown_default_executor(timeout=0.05)
            took = time.monotonic() - began
    finally:
        release.set()
    await soon(job)
    assert took < 1, f"after {took:.2f} s"
    equal([item.category for item in caught], [RuntimeWarning])


@row("run_coroutine_threadsafe()")
async def threadsafe(loop):
    def call():
        future = asyncio.run_coroutine_threadsafe(asyncio.sleep(0.001, "result"), loop)
        return future.result(2)

    equal(await soon(asyncio.to_thread(call)), "result")


@row("a wake-up from another thread is prompt")
async def prompt(loop):
    took = []

    def post(future, began):
        loop.call_soon_threadsafe(
            lambda: future.set_result(took.append(time.monotonic() - began[0])))

    for _ in range(10):
        future, began = loop.create_future(), [0]
        timer = threading.Timer(0.002, lambda future=future, began=began: (
            began.__setitem__(0, time.monotonic()), post(future, began)))
        timer.start()
        await soon(future)
        timer.join()
    assert min(took) < 0.005, f"{min(took) * 1e3:.1f} ms at best"
