"""Errors that nobody else can be told of."""
import asyncio
import logging

import pytest
from support.waiting import turns


@pytest.fixture
def plain_loop(loop):
    """A loop with the default handler."""
    loop.set_exception_handler(None)
    return loop


def fail():
    raise ZeroDivisionError("oops")


def run_once(loop):
    loop.call_soon(loop.stop)
    loop.run_forever()


def test_handler_can_be_asked_for(loop):
    def handler(loop, context):
        pass

    loop.set_exception_handler(handler)
    assert loop.get_exception_handler() is handler
    loop.set_exception_handler(None)
    assert loop.get_exception_handler() is None


@pytest.mark.parametrize("bad", [1, "handler", [print]])
def test_handler_must_be_callable(loop, bad):
    with pytest.raises(TypeError, match="callable"):
        loop.set_exception_handler(bad)


def test_handler_gets_loop_and_context(loop):
    got = []
    loop.set_exception_handler(lambda *args: got.append(args))
    loop.call_soon(fail)
    run_once(loop)
    (seen_loop, context), = got
    assert seen_loop is loop
    assert isinstance(context["exception"], ZeroDivisionError)
    assert "message" in context


def test_default_handler_logs(plain_loop, caplog):
    plain_loop.call_soon(fail)
    with caplog.at_level(logging.ERROR, "asyncio"):
        run_once(plain_loop)
    record, = caplog.records
    assert record.name == "asyncio"
    assert record.levelno == logging.ERROR
    assert "Exception in callback fail()" in record.getMessage()
    assert isinstance(record.exc_info[1], ZeroDivisionError)


def test_default_handler_can_be_called(plain_loop, caplog):
    with caplog.at_level(logging.ERROR, "asyncio"):
        plain_loop.default_exception_handler({"message": "something odd", "extra": 42})
    assert "something odd" in caplog.records[0].getMessage()
    assert "extra: 42" in caplog.records[0].getMessage()


def test_call_exception_handler_calls_it(loop, unhandled):
    context = {"message": "told by hand"}
    loop.call_exception_handler(context)
    assert unhandled.take_one() is context


def test_handler_that_fails_is_logged(loop, caplog):
    def handler(loop, context):
        raise LookupError("in the handler")

    loop.set_exception_handler(handler)
    loop.call_soon(fail)
    ran = []
    loop.call_soon(ran.append, 1)
    with caplog.at_level(logging.ERROR, "asyncio"):
        run_once(loop)
    assert ran == [1]
    assert "Unhandled error in exception handler" in caplog.text
    assert "in the handler" in caplog.text


def test_overridden_default_handler_that_fails_is_logged(plain_loop, caplog):
    def default(context):
        raise LookupError("in the default handler")

    plain_loop.default_exception_handler = default
    with caplog.at_level(logging.ERROR, "asyncio"):
        plain_loop.call_exception_handler({"message": "x"})
    assert "Exception in default exception handler" in caplog.text


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_handler_may_end_the_program(loop, error):
    def handler(loop, context):
        raise error

    loop.set_exception_handler(handler)
    loop.call_soon(fail)
    with pytest.raises(error):
        loop.run_forever()
    loop.set_exception_handler(None)
    loop.run_until_complete(asyncio.sleep(0))


def test_handler_may_stop_the_loop(loop):
    loop.set_exception_handler(lambda loop, context: loop.stop())
    loop.call_soon(fail)
    loop.run_forever()


def test_handler_may_be_replaced_by_itself(loop):
    got = []

    def first(loop, context):
        got.append("first")
        loop.set_exception_handler(second)

    def second(loop, context):
        got.append("second")

    loop.set_exception_handler(first)
    loop.call_soon(fail)
    loop.call_soon(fail)
    run_once(loop)
    assert got == ["first", "second"]


def test_overridden_call_exception_handler_is_used(loop):
    """Subclasses and instrumentation hook in there."""
    got = []
    loop.call_exception_handler = got.append
    loop.call_soon(fail)
    run_once(loop)
    context, = got
    assert isinstance(context["exception"], ZeroDivisionError)


async def test_errors_of_done_callbacks(loop, unhandled):
    future = loop.create_future()
    future.add_done_callback(lambda f: fail())
    future.set_result(None)
    await turns()
    assert isinstance(unhandled.take_one()["exception"], ZeroDivisionError)
