"""Starting, stopping and closing a loop."""
import asyncio
import gc
import weakref

import pytest
from support.loops import differs_from_asyncio
from support.waiting import in_thread

refused_run_ends_the_first = differs_from_asyncio(
    "the clean-up of the refused run marks the loop as not running", since=(3, 13)
)


def test_stop_finishes_the_current_batch(loop):
    ran = []

    def stop():
        loop.stop()
        loop.call_soon(ran.append, "next run")

    loop.call_soon(stop)
    loop.call_soon(ran.append, "same batch")
    loop.run_forever()
    assert ran == ["same batch"]
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert ran == ["same batch", "next run"]


def test_stop_before_the_run_makes_one_turn(loop):
    ran = []

    def first():
        ran.append(1)
        loop.call_soon(ran.append, 2)

    loop.call_soon(first)
    loop.stop()
    loop.run_forever()
    assert ran == [1]
    loop.stop()
    loop.run_forever()
    assert ran == [1, 2]


def test_stop_before_the_run_does_not_wait(loop):
    loop.call_later(3600, print)
    loop.stop()
    started = loop.time()
    loop.run_forever()
    assert loop.time() - started < 5


def test_stop_is_forgotten_after_the_run(loop):
    loop.stop()
    loop.run_forever()
    ran = []
    loop.call_soon(ran.append, 1)
    loop.call_later(0.01, loop.stop)
    loop.call_later(0.001, ran.append, 2)
    loop.run_forever()
    assert ran == [1, 2]


def test_run_forever_returns_nothing(loop):
    loop.stop()
    assert loop.run_forever() is None


def test_run_until_complete_gives_the_result(loop):
    async def main():
        await asyncio.sleep(0)
        return 42

    assert loop.run_until_complete(main()) == 42


def test_run_until_complete_takes_a_future(loop):
    future = loop.create_future()
    loop.call_soon(future.set_result, "done")
    assert loop.run_until_complete(future) == "done"


def test_run_until_complete_takes_an_awaitable(loop):
    class Awaitable:
        def __await__(self):
            yield
            return 7

    assert loop.run_until_complete(Awaitable()) == 7


def test_run_until_complete_raises_what_the_coroutine_raised(loop):
    async def main():
        raise LookupError("x")

    with pytest.raises(LookupError, match="x"):
        loop.run_until_complete(main())


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_run_until_complete_passes_interrupts_on(loop, error):
    async def main():
        raise error

    with pytest.raises(error):
        loop.run_until_complete(main())
    loop.run_until_complete(asyncio.sleep(0))


def test_run_until_complete_of_a_stopped_loop(loop):
    async def main():
        loop.stop()
        await asyncio.sleep(3600)

    task = loop.create_task(main())
    with pytest.raises(RuntimeError, match="Event loop stopped before Future completed"):
        loop.run_until_complete(task)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)


def test_run_until_complete_leaves_no_stop_behind(loop):
    """Its own done callback must not stop the next run of the same future's loop."""
    future = loop.create_future()
    future.set_result(1)
    assert loop.run_until_complete(future) == 1
    assert loop.run_until_complete(asyncio.sleep(0.001, 2)) == 2


def test_run_until_complete_wants_something_to_await(loop):
    with pytest.raises(TypeError):
        loop.run_until_complete(object())


def test_run_until_complete_with_the_future_of_another_loop(loop, loop_factory):
    other = loop_factory()
    future = other.create_future()
    with pytest.raises(ValueError, match="loop"):
        loop.run_until_complete(future)


@refused_run_ends_the_first
def test_nested_run_is_refused(loop):
    async def main():
        with pytest.raises(RuntimeError, match="already running"):
            loop.run_forever()
        coro = asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="already running"):
            loop.run_until_complete(coro)
        coro.close()
        return "still running"

    assert loop.run_until_complete(main()) == "still running"


@refused_run_ends_the_first
def test_second_loop_cannot_run_inside_the_first(loop, loop_factory):
    other = loop_factory()

    async def main():
        with pytest.raises(RuntimeError, match="while another loop is running"):
            other.run_forever()

    loop.run_until_complete(main())
    other.run_until_complete(asyncio.sleep(0))


@refused_run_ends_the_first
def test_same_loop_cannot_run_in_two_threads(loop):
    async def main():
        def run():
            with pytest.raises(RuntimeError, match="already running"):
                loop.run_forever()

        with in_thread(run):
            pass

    loop.run_until_complete(main())


def test_loop_may_move_between_threads(loop):
    assert loop.run_until_complete(asyncio.sleep(0, 1)) == 1
    results = []

    def run():
        results.append(loop.run_until_complete(asyncio.sleep(0.001, 2)))

    with in_thread(run):
        pass
    assert results == [2]
    assert loop.run_until_complete(asyncio.sleep(0, 3)) == 3


def test_is_running(loop):
    async def main():
        return loop.is_running()

    assert not loop.is_running()
    assert loop.run_until_complete(main())
    assert not loop.is_running()


def test_close_makes_it_closed(loop):
    assert not loop.is_closed()
    loop.close()
    assert loop.is_closed()


def test_close_twice(loop):
    loop.close()
    loop.close()
    assert loop.is_closed()


def test_running_loop_cannot_be_closed(loop):
    async def main():
        with pytest.raises(RuntimeError, match="Cannot close a running event loop"):
            loop.close()

    loop.run_until_complete(main())
    assert not loop.is_closed()


@pytest.mark.parametrize(
    ("method", "args"),
    [
        ("call_soon", (print,)),
        ("call_later", (1, print)),
        ("call_at", (1, print)),
        ("call_soon_threadsafe", (print,)),
        ("run_forever", ()),
        ("run_in_executor", (None, print)),
        ("add_reader", (0, print)),
        ("add_writer", (0, print)),
    ],
)
def test_closed_loop_refuses_work(loop, method, args):
    loop.close()
    with pytest.raises(RuntimeError, match="Event loop is closed"):
        getattr(loop, method)(*args)


def test_closed_loop_refuses_run_until_complete(loop):
    loop.close()
    coro = asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="Event loop is closed"):
        loop.run_until_complete(coro)
    coro.close()


def test_closed_loop_refuses_tasks(loop):
    loop.close()
    coro = asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="Event loop is closed"):
        loop.create_task(coro)
    coro.close()


def test_closed_loop_still_answers_questions(loop):
    loop.close()
    assert not loop.is_running()
    assert loop.time() > 0
    assert loop.get_debug() in (True, False)
    assert "closed=True" in repr(loop)


def test_repr_tells_the_state(loop):
    async def main():
        return repr(loop)

    assert "running=False closed=False" in repr(loop)
    assert f"debug={loop.get_debug()}" in repr(loop)
    assert "running=True closed=False" in loop.run_until_complete(main())


def test_loop_that_is_not_closed_warns(loop_spec):
    loop = loop_spec.make()
    with pytest.warns(ResourceWarning, match="unclosed event loop"):
        del loop
        gc.collect()


def test_closed_loop_is_freed(loop_spec):
    loop = loop_spec.make()
    ref = weakref.ref(loop)
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    del loop
    gc.collect()
    assert ref() is None


def test_debug_can_be_switched(loop_factory):
    loop = loop_factory()
    loop.set_debug(True)
    assert loop.get_debug() is True
    loop.set_debug(False)
    assert loop.get_debug() is False


def test_debug_can_be_switched_while_running(loop):
    ran = []

    async def main():
        for on in (True, False, True):
            loop.set_debug(on)
            await asyncio.sleep(0)
            ran.append(loop.get_debug())

    loop.run_until_complete(main())
    assert ran == [True, False, True]


def test_closed_loop_is_freed_without_the_collector(loop_spec):
    loop = loop_spec.make()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    dropped = weakref.ref(loop)
    gc.disable()
    try:
        del loop
        assert dropped() is None
    finally:
        gc.enable()


def test_asynchronous_generators_are_closed_by_shutdown(loop):
    closed = []

    async def numbers():
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(0)
            closed.append(True)

    async def main():
        generator = numbers()
        await anext(generator)
        return generator

    generator = loop.run_until_complete(main())
    assert closed == []
    loop.run_until_complete(loop.shutdown_asyncgens())
    assert closed == [True]
    del generator


def test_dropped_asynchronous_generator_is_closed_by_the_loop(loop):
    closed = []

    async def numbers():
        try:
            yield 1
        finally:
            await asyncio.sleep(0)
            closed.append(True)

    async def main():
        generator = numbers()
        await anext(generator)
        del generator
        gc.collect()
        for _ in range(5):
            await asyncio.sleep(0)

    loop.run_until_complete(main())
    assert closed == [True]


def test_hundreds_of_loops_one_after_another(loop_spec):
    for _ in range(200):
        loop = loop_spec.make()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
