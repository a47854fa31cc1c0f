"""Which context a callback runs in."""
import asyncio
import contextvars
import os
import signal

import pytest
from support.loops import differs_from_asyncio
from support.waiting import soon, turns

var = contextvars.ContextVar("var", default="unset")


def in_new_context(value):
    context = contextvars.copy_context()
    context.run(var.set, value)
    return context


def schedulers(loop):
    return {
        "call_soon": loop.call_soon,
        "call_soon_threadsafe": loop.call_soon_threadsafe,
        "call_later": lambda f, *a, **k: loop.call_later(0, f, *a, **k),
        "call_at": lambda f, *a, **k: loop.call_at(loop.time(), f, *a, **k),
    }


@pytest.fixture(params=["call_soon", "call_soon_threadsafe", "call_later", "call_at"])
def schedule(request, loop):
    return schedulers(loop)[request.param]


async def seen_by(loop, schedule, **options):
    future = loop.create_future()
    schedule(lambda: future.set_result(var.get()), **options)
    return await soon(future)


async def test_given_context_is_used(loop, schedule):
    assert await seen_by(loop, schedule, context=in_new_context("given")) == "given"


async def test_current_context_is_used_by_default(loop, schedule):
    var.set("mine")
    assert await seen_by(loop, schedule) == "mine"


async def test_context_is_taken_when_scheduling(loop, schedule):
    var.set("before")
    future = loop.create_future()
    schedule(lambda: future.set_result(var.get()))
    var.set("after")
    assert await soon(future) == "before"


async def test_none_means_the_current_context(loop, schedule):
    var.set("mine")
    assert await seen_by(loop, schedule, context=None) == "mine"


async def test_what_a_callback_sets_stays_in_its_context(loop, schedule):
    var.set("outer")
    context = contextvars.copy_context()
    future = loop.create_future()

    def callback():
        var.set("inner")
        future.set_result(None)

    schedule(callback, context=context)
    await soon(future)
    assert var.get() == "outer"
    assert context[var] == "inner"


async def test_callbacks_may_share_a_context(loop):
    context = contextvars.copy_context()
    seen = []
    loop.call_soon(var.set, "shared", context=context)
    loop.call_soon(lambda: seen.append(var.get()), context=context)
    loop.call_soon(lambda: seen.append(var.get()))
    await turns()
    assert seen == ["shared", "unset"]


async def test_scheduling_inside_a_callback_inherits_its_context(loop):
    seen = []
    loop.call_soon(
        lambda: loop.call_soon(lambda: seen.append(var.get())), context=in_new_context("outer")
    )
    await turns()
    assert seen == ["outer"]


@differs_from_asyncio("it does not have that yet", below=(3, 12))
async def test_handle_gives_its_context(loop):
    context = contextvars.copy_context()
    handles = [
        loop.call_soon(print, context=context),
        loop.call_soon_threadsafe(print, context=context),
        loop.call_later(100, print, context=context),
        loop.call_at(loop.time() + 100, print, context=context),
    ]
    for handle in handles:
        assert handle.get_context() is context
        handle.cancel()


@differs_from_asyncio("it does not have that yet", below=(3, 12))
async def test_handle_gives_the_context_it_copied(loop):
    var.set("mine")
    handle = loop.call_soon(print)
    assert isinstance(handle.get_context(), contextvars.Context)
    assert handle.get_context()[var] == "mine"
    handle.cancel()


async def test_context_that_is_entered_already_is_an_error_of_the_callback(loop, unhandled):
    context = contextvars.copy_context()
    ran = []

    def callback():
        ran.append("outer")
        try:
            context.run(ran.append, "inner")
        except RuntimeError:
            ran.append("refused")

    loop.call_soon(callback, context=context)
    await turns()
    assert ran == ["outer", "refused"]


async def test_exception_leaves_the_context_again(loop, unhandled):
    context = contextvars.copy_context()
    loop.call_soon(lambda: 1 / 0, context=context)
    await turns()
    assert isinstance(unhandled.take_one()["exception"], ZeroDivisionError)
    assert context.run(lambda: "free") == "free"


async def test_tasks_have_their_own_context(loop):
    var.set("parent")

    async def child():
        seen = var.get()
        var.set("child")
        await asyncio.sleep(0)
        return seen, var.get()

    assert await asyncio.gather(child(), child()) == [("parent", "child")] * 2
    assert var.get() == "parent"


async def test_create_task_takes_a_context(loop):
    context = in_new_context("given")

    async def child():
        before = var.get()
        var.set("changed")
        await asyncio.sleep(0)
        return before, var.get()

    assert await loop.create_task(child(), context=context) == ("given", "changed")
    assert context[var] == "changed"


async def test_done_callbacks_take_a_context(loop):
    future = loop.create_future()
    seen = []
    future.add_done_callback(lambda f: seen.append(var.get()), context=in_new_context("given"))
    future.set_result(None)
    await turns()
    assert seen == ["given"]


async def test_reader_and_writer_run_in_the_context_of_registration(loop):
    read_fd, write_fd = os.pipe()
    os.write(write_fd, b"x")
    seen = []
    read, written = loop.create_future(), loop.create_future()

    def on_read():
        seen.append(var.get())
        loop.remove_reader(read_fd)
        read.set_result(None)

    def on_write():
        seen.append(var.get())
        loop.remove_writer(write_fd)
        written.set_result(None)

    in_new_context("reader").run(loop.add_reader, read_fd, on_read)
    in_new_context("writer").run(loop.add_writer, write_fd, on_write)
    await soon(asyncio.gather(read, written))
    os.close(read_fd)
    os.close(write_fd)
    assert sorted(seen) == ["reader", "writer"]


async def test_signal_handler_runs_in_the_context_of_registration(loop):
    future = loop.create_future()
    in_new_context("signal").run(
        loop.add_signal_handler, signal.SIGUSR1, lambda: future.set_result(var.get())
    )
    os.kill(os.getpid(), signal.SIGUSR1)
    assert await soon(future) == "signal"
    loop.remove_signal_handler(signal.SIGUSR1)
