"""Callbacks run soon: order, arguments, handles, exceptions."""
import asyncio
import contextvars
import gc
import inspect
import weakref

import pytest
from support.loops import only_in_debug
from support.waiting import in_thread, turns


def run_once(loop):
    """Run what is ready now, and nothing that it schedules."""
    loop.call_soon(loop.stop)
    loop.run_forever()


def test_callbacks_run_in_the_order_they_were_scheduled(loop):
    ran = []
    for i in range(1000):
        loop.call_soon(ran.append, i)
    run_once(loop)
    assert ran == list(range(1000))


def test_arguments_are_passed_on(loop):
    seen = []
    loop.call_soon(lambda *args: seen.append(args))
    loop.call_soon(lambda *args: seen.append(args), 1)
    loop.call_soon(lambda *args: seen.append(args), 1, "two", None, [3])
    run_once(loop)
    assert seen == [(), (1,), (1, "two", None, [3])]


def test_any_number_of_arguments(loop):
    seen = []
    for count in (5, 6, 7, 8, 50, 300):
        loop.call_soon(lambda *args: seen.append(args), *range(count))
    run_once(loop)
    assert [len(args) for args in seen] == [5, 6, 7, 8, 50, 300]


def test_context_may_be_given(loop):
    variable = contextvars.ContextVar("variable", default="here")
    context = contextvars.copy_context()
    context.run(variable.set, "there")
    seen = []
    name = "".join(["con", "text"])
    for given in ({"context": context}, {name: context}, {"context": None}, {}):
        loop.call_soon(lambda *args: seen.append((*args, variable.get())), 1, 2, **given)
    run_once(loop)
    assert seen == [(1, 2, "there"), (1, 2, "there"), (1, 2, "here"), (1, 2, "here")]


@pytest.mark.parametrize("given", [
    {"end": ""}, {"context": None, "end": ""}, {"end": "", "context": None}, {"contexts": None},
])
def test_other_keyword_arguments_are_refused(loop, given):
    with pytest.raises(TypeError, match=r"unexpected keyword argument '(end|contexts)'"):
        loop.call_soon(print, **given)


@pytest.mark.parametrize("given", [{}, {"context": None}])
def test_callback_is_needed(loop, given):
    with pytest.raises(TypeError, match="argument"):
        loop.call_soon(**given)


def test_signature_is_known(loop):
    assert str(inspect.signature(loop.call_soon)) in (
        "(callback, *args, context=None)", "(callback, /, *args, context=None)")


def test_handles_that_are_made_again_and_again_share_nothing(loop):
    """Memory of dropped handles is used for new ones."""
    ran = []
    for cancelled in (True, False, True):
        handles = [loop.call_soon(ran.append, i) for i in range(1000)]
        assert not any(handle.cancelled() for handle in handles)
        if cancelled:
            for handle in handles:
                handle.cancel()
        dead = [weakref.ref(handle) for handle in handles]
        handles = handle = None
        run_once(loop)
        assert ran == ([] if cancelled else list(range(1000)))
        ran.clear()
        gc.collect()
        assert not any(ref() for ref in dead)


def test_callback_scheduled_by_a_callback_runs_in_the_next_turn(loop):
    ran = []

    def first():
        ran.append("first")
        loop.call_soon(ran.append, "third")

    loop.call_soon(first)
    loop.call_soon(ran.append, "second")
    run_once(loop)
    assert ran == ["first", "second"]
    run_once(loop)
    assert ran == ["first", "second", "third"]


def test_callback_may_be_scheduled_twice(loop):
    ran = []
    callback = ran.append
    loop.call_soon(callback, 1)
    loop.call_soon(callback, 1)
    run_once(loop)
    assert ran == [1, 1]


def test_callbacks_survive_between_runs(loop):
    ran = []
    loop.call_soon(ran.append, 1)
    run_once(loop)
    loop.call_soon(ran.append, 2)
    run_once(loop)
    assert ran == [1, 2]


def test_running_loop_is_known_inside_a_callback_only(loop):
    seen = []
    loop.call_soon(lambda: seen.append(asyncio.get_running_loop()))
    run_once(loop)
    assert seen == [loop]
    with pytest.raises(RuntimeError, match="no running event loop"):
        asyncio.get_running_loop()


def test_handle_is_an_asyncio_handle(loop):
    handle = loop.call_soon(print)
    assert isinstance(handle, asyncio.Handle)
    assert not isinstance(handle, asyncio.TimerHandle)
    handle.cancel()


def test_cancelled_callback_does_not_run(loop):
    ran = []
    handle = loop.call_soon(ran.append, 1)
    assert not handle.cancelled()
    handle.cancel()
    assert handle.cancelled()
    run_once(loop)
    assert ran == []


def test_callback_cancelled_by_an_earlier_one_does_not_run(loop):
    ran = []
    loop.call_soon(lambda: handle.cancel())
    handle = loop.call_soon(ran.append, 1)
    loop.call_soon(ran.append, 2)
    run_once(loop)
    assert ran == [2]


def test_callback_may_cancel_itself(loop):
    ran = []

    def callback():
        handle.cancel()
        ran.append(handle.cancelled())

    handle = loop.call_soon(callback)
    run_once(loop)
    assert ran == [True]


def test_cancel_twice_is_the_same_as_once(loop):
    handle = loop.call_soon(print)
    handle.cancel()
    handle.cancel()
    run_once(loop)
    assert handle.cancelled()


def test_cancel_after_the_run_is_harmless(loop):
    ran = []
    handle = loop.call_soon(ran.append, 1)
    run_once(loop)
    handle.cancel()
    run_once(loop)
    assert ran == [1]


def test_kept_handle_stays_its_own(loop):
    """A loop that recycles handles must not touch one that somebody still holds."""
    ran = []
    kept = [loop.call_soon(ran.append, i) for i in range(100)]
    run_once(loop)
    for i in range(100):
        loop.call_soon(ran.append, 100 + i)
    for handle in kept:
        handle.cancel()
    run_once(loop)
    assert ran == list(range(200))


class Referenced:
    """Something that weak references can follow."""

    def __call__(self, *args):
        pass


def test_cancel_drops_callback_and_arguments(loop):
    callback, argument = Referenced(), Referenced()
    dropped = weakref.ref(callback), weakref.ref(argument)
    handle = loop.call_soon(callback, argument)
    handle.cancel()
    del callback, argument
    gc.collect()
    assert [ref() for ref in dropped] == [None, None]
    run_once(loop)


def test_run_callback_and_arguments_are_dropped(loop):
    callback, argument = Referenced(), Referenced()
    dropped = weakref.ref(callback), weakref.ref(argument)
    loop.call_soon(callback, argument)
    run_once(loop)
    del callback, argument
    gc.collect()
    assert [ref() for ref in dropped] == [None, None]


def test_close_drops_what_was_not_run(loop):
    argument = Referenced()
    dropped = weakref.ref(argument)
    loop.call_soon(print, argument)
    loop.close()
    del argument
    gc.collect()
    assert dropped() is None


def test_handle_can_be_referenced_weakly(loop):
    handle = loop.call_soon(print)
    ref = weakref.ref(handle)
    assert ref() is handle
    handle.cancel()
    run_once(loop)
    del handle
    gc.collect()
    assert ref() is None


def named_callback():
    pass


def test_repr_names_the_callback(loop):
    handle = loop.call_soon(named_callback)
    assert "Handle" in repr(handle)
    assert "named_callback" in repr(handle)
    assert "cancelled" not in repr(handle)
    handle.cancel()
    assert "cancelled" in repr(handle)


@only_in_debug
def test_repr_says_in_debug_where_the_handle_was_made(loop):
    handle = loop.call_soon(named_callback)
    assert f"created at {__file__}" in repr(handle)
    handle.cancel()
    assert "created at" in repr(handle)
    assert "named_callback" in repr(handle)


@pytest.mark.parametrize("schedule", ["call_soon", "call_soon_threadsafe"])
@only_in_debug
class TestDebugChecks:
    def test_callback_that_cannot_be_called(self, loop, schedule):
        with pytest.raises(TypeError, match="callable"):
            getattr(loop, schedule)("not callable")

    def test_coroutine_function(self, loop, schedule):
        async def coroutine():
            pass

        with pytest.raises(TypeError, match="coroutines cannot be used"):
            getattr(loop, schedule)(coroutine)

    def test_coroutine_object(self, loop, schedule):
        async def coroutine():
            pass

        coro = coroutine()
        with pytest.raises(TypeError, match="coroutines cannot be used"):
            getattr(loop, schedule)(coro)
        coro.close()


@only_in_debug
def test_debug_refuses_call_soon_from_another_thread(loop):
    async def main():
        def wrong():
            with pytest.raises(RuntimeError, match="Non-thread-safe"):
                loop.call_soon(print)
            with pytest.raises(RuntimeError, match="Non-thread-safe"):
                loop.call_later(1, print)
            with pytest.raises(RuntimeError, match="Non-thread-safe"):
                loop.call_at(loop.time(), print)

        with in_thread(wrong):
            pass

    loop.run_until_complete(main())


def test_exception_is_reported_and_the_loop_goes_on(loop, unhandled):
    ran = []
    error = ZeroDivisionError()

    def fail():
        raise error

    handle = loop.call_soon(fail)
    loop.call_soon(ran.append, 1)
    run_once(loop)
    assert ran == [1]
    context = unhandled.take_one()
    assert context["exception"] is error
    assert context["handle"] is handle
    assert "Exception in callback" in context["message"]
    assert "fail" in context["message"]


@only_in_debug
def test_report_says_in_debug_where_the_callback_was_scheduled(loop, unhandled):
    loop.call_soon(lambda: 1 / 0)
    run_once(loop)
    frames = unhandled.take_one()["source_traceback"]
    assert frames[-1].filename == __file__


def test_exception_derived_from_base_exception_is_reported_too(loop, unhandled):
    class Odd(BaseException):
        pass

    def fail():
        raise Odd

    loop.call_soon(fail)
    run_once(loop)
    assert isinstance(unhandled.take_one()["exception"], Odd)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_interrupt_leaves_the_run_and_keeps_the_rest(loop, error):
    ran = []

    def fail():
        raise error

    loop.call_soon(ran.append, 1)
    loop.call_soon(fail)
    loop.call_soon(ran.append, 2)
    loop.call_soon(loop.stop)
    with pytest.raises(error):
        loop.run_forever()
    assert ran == [1]
    assert not loop.is_running()
    loop.run_forever()
    assert ran == [1, 2]


def test_callback_that_is_not_callable_is_reported(loop, unhandled):
    loop.set_debug(False)
    loop.call_soon("not callable")
    run_once(loop)
    assert isinstance(unhandled.take_one()["exception"], TypeError)


def test_subclass_may_override_call_soon(loop_spec, loop_factory):
    base = type(loop_factory())
    scheduled = []

    class Counting(base):
        def call_soon(self, callback, *args, context=None):
            scheduled.append(callback)
            return super().call_soon(callback, *args, context=context)

    loop = Counting() if loop_spec.is_asyncio else Counting(mode=loop_spec.mode)
    try:
        loop.run_until_complete(turns(3))
    finally:
        loop.close()
    assert len(scheduled) >= 3


def test_attributes_can_be_set_on_the_loop(loop):
    loop.note = "mine"
    assert loop.note == "mine"


def test_instance_attribute_may_replace_call_soon(loop):
    """Instrumentation wraps the methods of a loop object; asyncio's tasks look them up there."""
    scheduled = []
    original = loop.call_soon

    def call_soon(callback, *args, context=None):
        scheduled.append(callback)
        return original(callback, *args, context=context)

    loop.call_soon = call_soon
    loop.run_until_complete(turns(2))
    assert scheduled
