"""Tasks and futures made by the loop."""
import asyncio
import gc
import logging

import pytest
from support.loops import differs_from_asyncio, needs_python, only_in_debug, without_debug
from support.waiting import turns


def test_futures_and_tasks_are_those_of_asyncio(loop):
    async def main():
        assert isinstance(loop.create_future(), asyncio.Future)
        task = loop.create_task(asyncio.sleep(0))
        assert type(task) is asyncio.Task
        assert task.get_loop() is loop
        await task

    loop.run_until_complete(main())


async def test_task_name(loop):
    task = loop.create_task(asyncio.sleep(0), name="worker")
    assert task.get_name() == "worker"
    await task


async def test_task_factory_makes_the_tasks(loop):
    made = []

    def factory(loop, coro, **options):
        made.append(options)
        return asyncio.Task(coro, loop=loop, **options)

    assert loop.get_task_factory() is None
    loop.set_task_factory(factory)
    assert loop.get_task_factory() is factory
    assert await loop.create_task(asyncio.sleep(0, 5)) == 5
    loop.set_task_factory(None)
    await loop.create_task(asyncio.sleep(0))
    assert len(made) == 1


@differs_from_asyncio("refuses keyword arguments that it does not know", below=(3, 13, 3))
async def test_task_factory_is_given_what_else_the_caller_asks_for(loop):
    given = []

    def factory(loop, coro, *, priority=0, context=None):
        given.append(priority)
        return asyncio.Task(coro, loop=loop, name="factory's", context=context)

    loop.set_task_factory(factory)
    try:
        task = loop.create_task(asyncio.sleep(0), priority=3)
        assert task.get_name() == "factory's"
        await task
    finally:
        loop.set_task_factory(None)
    assert given == [3]


def test_task_factory_must_be_callable(loop):
    with pytest.raises(TypeError, match="callable"):
        loop.set_task_factory("not callable")


@needs_python(3, 12)
async def test_eager_task_factory_runs_the_first_step_at_once(loop):
    ran = []

    async def child():
        ran.append(1)
        return 3

    loop.set_task_factory(asyncio.eager_task_factory)
    task = loop.create_task(child())
    assert ran == [1]
    assert task.done()
    assert await task == 3


@needs_python(3, 12)
async def test_eager_tasks_that_block_go_on_later(loop):
    loop.set_task_factory(asyncio.eager_task_factory)

    async def child(i):
        await asyncio.sleep(0)
        return i

    assert await asyncio.gather(*(child(i) for i in range(50))) == list(range(50))


@without_debug("takes long there")
async def test_many_tasks_take_turns(loop):
    steps = []

    async def worker(i):
        for step in range(3):
            steps.append((step, i))
            await asyncio.sleep(0)

    await asyncio.gather(*(worker(i) for i in range(1000)))
    assert steps == [(step, i) for step in range(3) for i in range(1000)]


async def test_cancellation_reaches_the_coroutine(loop):
    cancelled = []

    async def child():
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    task = loop.create_task(child())
    await turns(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cancelled == [True]


async def test_exception_nobody_asked_for_is_reported(loop, unhandled):
    async def fail():
        raise LookupError("lost")

    task = loop.create_task(fail())
    await turns()
    del task
    gc.collect()
    context = unhandled.take_one()
    assert "never retrieved" in context["message"]
    assert isinstance(context["exception"], LookupError)


async def test_future_callbacks_run_in_order(loop):
    order = []
    future = loop.create_future()
    for i in range(10):
        future.add_done_callback(lambda f, i=i: order.append(i))
    future.set_result(None)
    await turns()
    assert order == list(range(10))


async def test_task_group_waits_for_its_children(loop):
    done = []

    async def child(i):
        await asyncio.sleep(0.001)
        done.append(i)

    async with asyncio.TaskGroup() as group:
        for i in range(5):
            group.create_task(child(i))
    assert sorted(done) == list(range(5))


async def test_current_task_and_all_tasks(loop):
    task = asyncio.current_task()
    assert task is not None
    assert task in asyncio.all_tasks()
    assert task.get_loop() is loop


@only_in_debug
async def test_slow_callbacks_are_logged_in_debug(loop, caplog):
    import time

    loop.slow_callback_duration = 0.01
    with caplog.at_level(logging.WARNING, "asyncio"):
        loop.call_soon(time.sleep, 0.02)
        await turns()
    assert any("took" in record.getMessage() for record in caplog.records)


@only_in_debug
async def test_fast_callbacks_are_not_logged(loop, caplog):
    loop.slow_callback_duration = 5
    with caplog.at_level(logging.WARNING, "asyncio"):
        loop.call_soon(sum, range(10))
        await turns()
    assert not caplog.records


@only_in_debug
async def test_debug_remembers_where_a_coroutine_came_from(loop):
    coro = asyncio.sleep(0)
    assert coro.cr_origin
    await coro


async def test_locks_events_and_queues_work(loop):
    queue, event, lock = asyncio.Queue(1), asyncio.Event(), asyncio.Lock()
    got = []

    async def producer():
        for i in range(20):
            await queue.put(i)
        event.set()

    async def consumer():
        while len(got) < 20:
            async with lock:
                got.append(await queue.get())

    await asyncio.gather(producer(), consumer(), event.wait())
    assert got == list(range(20))
