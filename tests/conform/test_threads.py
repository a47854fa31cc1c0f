"""Calls from other threads, from signal handlers and from destructors."""
import asyncio
import contextvars
import functools
import gc
import os
import random
import signal
import threading
import time
import warnings
import weakref

import pytest
from support.loops import differs_from_asyncio, without_debug
from support.waiting import in_thread, soon, until


def test_handle_is_an_asyncio_handle(loop):
    handle = loop.call_soon_threadsafe(print)
    assert isinstance(handle, asyncio.Handle)
    handle.cancel()
    assert handle.cancelled()


async def test_call_from_the_own_thread_runs_soon(loop):
    ran = []
    loop.call_soon_threadsafe(ran.append, 1)
    loop.call_soon(ran.append, 2)
    await asyncio.sleep(0.001)
    assert sorted(ran) == [1, 2]


def test_call_before_the_run_is_not_lost(loop):
    def post():
        loop.call_soon_threadsafe(loop.stop)

    with in_thread(post):
        pass
    loop.run_forever()


def test_call_between_runs_is_not_lost(loop):
    loop.run_until_complete(asyncio.sleep(0))
    ran = []
    with in_thread(loop.call_soon_threadsafe, ran.append, 1):
        pass
    loop.run_until_complete(asyncio.sleep(0.001))
    assert ran == [1]


def test_idle_loop_is_woken(loop):
    """The loop has nothing else to do; without a wake-up it would sleep for ever."""
    def post():
        time.sleep(0.01)
        loop.call_soon_threadsafe(loop.stop)

    with in_thread(post):
        loop.run_forever()


def test_loop_that_waits_for_a_timer_is_woken(loop):
    loop.call_later(3600, print)

    def post():
        time.sleep(0.01)
        loop.call_soon_threadsafe(loop.stop)

    with in_thread(post):
        loop.run_forever()


def test_wake_up_is_prompt(loop):
    delays = []

    def post():
        for _ in range(20):
            time.sleep(0.002)
            loop.call_soon_threadsafe(note, time.monotonic())
        loop.call_soon_threadsafe(loop.stop)

    def note(posted_at):
        delays.append(time.monotonic() - posted_at)

    with in_thread(post):
        loop.run_forever()
    # The median, so that a busy machine does no harm.
    assert sorted(delays)[10] < 0.05


@without_debug("takes long there")
def test_no_call_of_a_storm_is_lost(loop):
    count, threads = 5000, 4
    got = [[] for _ in range(threads)]
    left = threads

    def done():
        nonlocal left
        left -= 1
        if left == 0:
            loop.stop()

    def post(number):
        for i in range(count):
            loop.call_soon_threadsafe(got[number].append, i)
        loop.call_soon_threadsafe(done)

    started = [threading.Thread(target=post, args=(n,)) for n in range(threads)]
    for thread in started:
        thread.start()
    loop.run_forever()
    for thread in started:
        thread.join()
    assert got == [list(range(count))] * threads


@without_debug("takes long there")
def test_no_call_is_lost_on_the_edge_of_sleep(loop):
    """Single posts at random moments, each of which must end a run on its own."""
    pick = random.Random(5)
    pauses = [pick.choice((0, 0, 1e-6, 1e-5, 1e-4, 1e-3)) for _ in range(500)]
    go = threading.Semaphore(0)

    def post():
        for pause in pauses:
            go.acquire()
            if pause:
                time.sleep(pause)
            loop.call_soon_threadsafe(loop.stop)

    with in_thread(post):
        for _ in pauses:
            go.release()
            loop.run_forever()


def test_ping_pong_between_two_loops(loop_factory):
    ours, theirs = loop_factory(), loop_factory()
    rounds = 300
    got = []

    def ping(i):
        got.append(i)
        if i == rounds:
            theirs.call_soon_threadsafe(theirs.stop)
            ours.stop()
        else:
            theirs.call_soon_threadsafe(pong, i)

    def pong(i):
        ours.call_soon_threadsafe(ping, i + 1)

    ours.call_soon(ping, 0)
    with in_thread(theirs.run_forever):
        ours.run_forever()
    assert got == list(range(rounds + 1))


def test_calls_of_one_thread_keep_their_order(loop):
    ran = []

    def post():
        for i in range(100):
            loop.call_soon_threadsafe(ran.append, i)
        loop.call_soon_threadsafe(loop.stop)

    with in_thread(post):
        loop.run_forever()
    assert ran == list(range(100))


def test_closed_loop_refuses_calls(loop):
    loop.close()

    def post():
        with pytest.raises(RuntimeError, match="Event loop is closed"):
            loop.call_soon_threadsafe(print)

    with in_thread(post):
        pass


def test_closing_while_others_post(loop_factory):
    """A late producer gets an exception; it never writes to a descriptor of somebody else."""
    for _ in range(10):
        loop = loop_factory()
        refused = threading.Event()

        def post(loop=loop, refused=refused):
            while True:
                try:
                    loop.call_soon_threadsafe(int)
                except RuntimeError:
                    refused.set()
                    return

        with in_thread(post):
            loop.run_until_complete(asyncio.sleep(0.002))
            loop.close()
            assert refused.wait(10)


def test_cancel_from_another_thread(loop):
    ran = []

    def post():
        handle = loop.call_soon_threadsafe(ran.append, 1)
        handle.cancel()
        loop.call_soon_threadsafe(loop.stop)

    with in_thread(post):
        pass
    loop.run_forever()
    assert ran == []


def test_exception_is_reported(loop, unhandled):
    def post():
        loop.call_soon_threadsafe(lambda: 1 / 0)
        loop.call_soon_threadsafe(loop.stop)

    with in_thread(post):
        loop.run_forever()
    assert isinstance(unhandled.take_one()["exception"], ZeroDivisionError)


def test_context_of_the_posting_thread_is_used(loop):
    var = contextvars.ContextVar("var", default="unset")
    seen = []

    def post():
        var.set("thread")
        loop.call_soon_threadsafe(lambda: seen.append(var.get()))
        loop.call_soon_threadsafe(loop.stop)

    with in_thread(post):
        loop.run_forever()
    assert seen == ["thread"]


def test_call_from_a_python_signal_handler(loop):
    ran = []

    def handler(signum, frame):
        loop.call_soon_threadsafe(ran.append, signum)
        loop.call_soon_threadsafe(loop.stop)

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        loop.call_later(0.005, os.kill, os.getpid(), signal.SIGUSR1)
        loop.run_forever()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert ran == [signal.SIGUSR1]


def test_call_from_a_destructor(loop):
    ran = []

    class Dying:
        def __del__(self):
            loop.call_soon_threadsafe(ran.append, 1)
            loop.call_soon_threadsafe(loop.stop)

    doomed = [Dying()]
    loop.call_later(0.001, doomed.clear)
    loop.run_forever()
    assert ran == [1]


def test_run_coroutine_threadsafe_gives_the_result(loop):
    async def double(x):
        await asyncio.sleep(0.001)
        return 2 * x

    results = []

    def post():
        results.append(asyncio.run_coroutine_threadsafe(double(21), loop).result(10))
        loop.call_soon_threadsafe(loop.stop)

    with in_thread(post):
        loop.run_forever()
    assert results == [42]


def test_run_coroutine_threadsafe_can_be_cancelled(loop):
    cancelled = []

    async def wait():
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise
        finally:
            loop.call_soon(loop.stop)

    def post():
        time.sleep(0.002)
        future = asyncio.run_coroutine_threadsafe(wait(), loop)
        time.sleep(0.002)
        future.cancel()

    with in_thread(post):
        loop.run_forever()
    assert cancelled in ([True], [])    # the task may not have begun


async def test_executor_gives_the_result(loop):
    assert await loop.run_in_executor(None, sum, [1, 2, 3]) == 6
    main = threading.get_ident()
    assert await loop.run_in_executor(None, threading.get_ident) != main


async def test_executor_passes_exceptions_on(loop):
    with pytest.raises(ZeroDivisionError):
        await loop.run_in_executor(None, lambda: 1 / 0)


async def test_executor_runs_side_by_side_with_the_loop(loop):
    release = threading.Event()
    future = loop.run_in_executor(None, release.wait, 10)
    await asyncio.sleep(0.002)
    assert not future.done()
    release.set()
    assert await soon(future) is True


async def test_given_executor_is_used(loop):
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1, "mine") as executor:
        name = await loop.run_in_executor(executor, lambda: threading.current_thread().name)
        assert name.startswith("mine")
        loop.set_default_executor(executor)
        name = await loop.run_in_executor(None, lambda: threading.current_thread().name)
        assert name.startswith("mine")
        await loop.shutdown_default_executor()
    with pytest.raises(RuntimeError, match="shutdown"):
        await loop.run_in_executor(None, print)


def test_default_executor_must_be_a_thread_pool(loop):
    with pytest.raises(TypeError):
        loop.set_default_executor("not an executor")


async def test_many_executor_jobs(loop):
    jobs = [loop.run_in_executor(None, int, i) for i in range(300)]
    assert await asyncio.gather(*jobs) == list(range(300))


async def test_to_thread(loop):
    assert await asyncio.to_thread(sum, [1, 2]) == 3


def test_two_loops_in_two_threads_run_at_once(loop_factory):
    first, second = loop_factory(), loop_factory()
    ready = threading.Barrier(2, timeout=10)
    results = []

    async def main(name):
        # Each waits for the other inside its own loop: only at the same time can both get on.
        await asyncio.get_running_loop().run_in_executor(None, ready.wait)
        await asyncio.sleep(0.002)
        results.append(name)

    with in_thread(lambda: second.run_until_complete(main("second"))):
        first.run_until_complete(main("first"))
    assert sorted(results) == ["first", "second"]


def test_loops_in_many_threads(loop_spec):
    async def work(i):
        for _ in range(20):
            await asyncio.sleep(0.0005)
        return i

    results = []

    def run(i):
        loop = loop_spec.make()
        try:
            results.append(loop.run_until_complete(work(i)))
        finally:
            loop.close()

    threads = [threading.Thread(target=run, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == list(range(8))


def test_other_threads_run_while_compiled_callbacks_keep_the_loop_busy(loop):
    """No Python code runs in this loop, so it must let other threads in on its own account."""
    again = functools.partial(loop.call_soon)
    again.__setstate__((loop.call_soon, (again,), {}, {}))
    again()

    def post():
        time.sleep(0.01)
        loop.call_soon_threadsafe(loop.stop)

    with in_thread(post):
        loop.run_forever()
    again.__setstate__((int, (), {}, {}))


def test_loop_in_a_thread_takes_work_from_the_main_thread(loop):
    with in_thread(loop.run_forever):
        futures = [
            asyncio.run_coroutine_threadsafe(asyncio.sleep(0.001, i), loop) for i in range(50)
        ]
        assert [future.result(10) for future in futures] == list(range(50))
        loop.call_soon_threadsafe(loop.stop)


async def test_wait_for_a_flag_set_by_a_thread(loop):
    seen = []
    with in_thread(loop.call_soon_threadsafe, seen.append, 1):
        await until(lambda: seen, "the call")


@differs_from_asyncio("waits for the threads all the same", below=(3, 13))
@without_debug("executors know no debug mode")
async def test_shutdown_of_the_executor_gives_up_in_time(loop):
    release = threading.Event()
    job = loop.run_in_executor(None, release.wait, 5)
    try:
        with pytest.warns(RuntimeWarning, match="joining its threads within 0.02 s"):
            await asyncio.wait_for(loop.shutdown_default_executor(timeout=0.02), 2)
    finally:
        release.set()
    assert await soon(job)


def test_forgotten_loop_with_a_posted_callback_is_freed(loop_spec):
    class Thing:
        def method(self):
            pass

    loop, thing = loop_spec.make(), Thing()
    loop.call_soon_threadsafe(thing.method)
    loop.call_soon_threadsafe(print, loop)
    known = weakref.ref(thing)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)    # that it was not closed
        del loop, thing
        gc.collect()
    assert known() is None


async def test_whoever_walks_through_all_objects_finds_only_objects(loop):
    """As debuggers and memory profilers do: an empty place in a list would end the process."""
    timers = [loop.call_later(60 + i, print) for i in range(200)]
    for timer in timers[::3]:
        timer.cancel()
    for _ in range(100):
        loop.call_soon(int)
        loop.call_soon_threadsafe(int)
    for found in gc.get_objects():
        if type(found) is list:
            for item in found:
                type(item)
    for timer in timers:
        timer.cancel()
    await asyncio.sleep(0)
