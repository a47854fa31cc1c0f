"""Futures, tasks and task factories."""
import asyncio
import contextvars

from support.waiting import soon, turns

from surface.checks import equal, kind_of, raises
from surface.rows import subject

row = subject("Tasks")
variable = contextvars.ContextVar("variable", default="unset")


async def read_variable():
    return variable.get()


async def note(ran):
    ran.append("began")
    await asyncio.sleep(0)
    ran.append("ended")


@row("create_future() makes an asyncio.Future")
async def create_future(loop):
    future = loop.create_future()
    kind_of(future, asyncio.Future)
    assert future.get_loop() is loop, "of another loop"
    loop.call_soon(future.set_result, 1)
    equal(await future, 1)


@row("create_task(coro=) makes an asyncio.Task")
async def create_task(loop):
    task = loop.create_task(asyncio.sleep(0, "result"))
    kind_of(task, asyncio.Task)
    equal(await task, "result")


@row("create_task(name=)")
async def task_name(loop):
    task = loop.create_task(asyncio.sleep(0), name="mine")
    equal(task.get_name(), "mine")
    await task


@row("create_task(context=)")
async def task_context(loop):
    context = contextvars.copy_context()
    context.run(variable.set, "given")
    equal(await loop.create_task(read_variable(), context=context), "given")
    equal(await loop.create_task(read_variable()), "unset")


@row("create_task(eager_start=)", python=(3, 12))
async def eager_start(loop):
    ran = []
    task = loop.create_task(note(ran), eager_start=True)
    equal(ran, ["began"])
    await task
    task = loop.create_task(note(ran), eager_start=False)
    equal(ran, ["began", "ended"])
    await task


@row("set_task_factory(factory=), get_task_factory()")
async def task_factory(loop):
    class Mine(asyncio.Task):
        pass

    def factory(loop, coro, **options):
        return Mine(coro, loop=loop, **options)

    loop.set_task_factory(factory)
    assert loop.get_task_factory() is factory, "another factory"
    task = loop.create_task(asyncio.sleep(0), name="named")
    kind_of(task, Mine)
    equal(task.get_name(), "named")
    await task
    loop.set_task_factory(None)
    equal(loop.get_task_factory(), None)


@row("set_task_factory() refuses what cannot be called")
async def wrong_factory(loop):
    with raises(TypeError):
        loop.set_task_factory(42)


@row("create_task(context=) reaches the task factory")
async def factory_context(loop):
    given = []

    def factory(loop, coro, **options):
        given.append(options.get("context"))
        return asyncio.Task(coro, loop=loop, **options)

    context = contextvars.copy_context()
    context.run(variable.set, "given")
    loop.set_task_factory(factory)
    try:
        equal(await loop.create_task(read_variable(), context=context), "given")
    finally:
        loop.set_task_factory(None)
    equal(given, [context])


@row("create_task(**kwargs=) reaches the task factory")
async def factory_arguments(loop):
    given = {}

    def factory(loop, coro, *, priority=None, context=None, name=None):
        given["priority"] = priority
        return asyncio.Task(coro, loop=loop, context=context)

    loop.set_task_factory(factory)
    coro = asyncio.sleep(0)
    try:
        await loop.create_task(coro, priority=3)
    finally:
        coro.close()        # where no task took it
        loop.set_task_factory(None)
    equal(given, {"priority": 3})


@row("a task keeps the name that its factory gave it")
async def factory_name(loop):
    loop.set_task_factory(lambda loop, coro, **options: asyncio.Task(
        coro, loop=loop, **{"name": "factory's", **options}))
    task = loop.create_task(asyncio.sleep(0))
    loop.set_task_factory(None)
    await task
    equal(task.get_name(), "factory's")


@row("asyncio.eager_task_factory", python=(3, 12))
async def eager_factory(loop):
    ran = []
    loop.set_task_factory(asyncio.eager_task_factory)
    try:
        task = asyncio.create_task(note(ran))
        equal(ran, ["began"])
        await task
        done = asyncio.create_task(read_variable())
        equal(done.done(), True, "a task that never waits is done at once")
    finally:
        loop.set_task_factory(None)


@row("asyncio.create_eager_task_factory()", python=(3, 12))
async def own_eager_factory(loop):
    class Mine(asyncio.Task):
        pass

    ran = []
    loop.set_task_factory(asyncio.create_eager_task_factory(Mine))
    coro = note(ran)
    try:
        task = asyncio.create_task(coro, name="named")
        equal(ran, ["began"])
        kind_of(task, Mine)
        equal(task.get_name(), "named")
        await task
    finally:
        coro.close()
        loop.set_task_factory(None)


@row("TaskGroup, timeout, gather")
async def groups(loop):
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(asyncio.sleep(0, number)) for number in range(3)]
    equal([task.result() for task in tasks], [0, 1, 2])
    with raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await loop.create_future()
    equal(await soon(asyncio.gather(asyncio.sleep(0, "a"), asyncio.sleep(0, "b"))), ["a", "b"])


@row("cancelling a task reaches its coroutine")
async def cancel(loop):
    reached = []

    async def wait():
        try:
            await loop.create_future()
        except asyncio.CancelledError:
            reached.append(True)
            raise

    task = loop.create_task(wait())
    await turns()
    task.cancel()
    with raises(asyncio.CancelledError):
        await task
    equal(reached, [True])


@row("asyncio.current_task(), all_tasks()")
async def known_tasks(loop):
    other = loop.create_task(asyncio.sleep(0.001))
    assert asyncio.current_task() in asyncio.all_tasks(), "the current task is unknown"
    assert other in asyncio.all_tasks(), "the other task is unknown"
    await other
