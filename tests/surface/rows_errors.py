"""The exception handler, and debug mode."""
import asyncio
import logging
import threading
import time

from support.waiting import turns

from surface.checks import equal, kind_of, raises
from surface.rows import subject

row = subject("Errors and debugging")


def fail():
    raise LookupError("mine")


class Records(logging.Handler):
    """What is logged to "asyncio" meanwhile."""

    def __enter__(self):
        self.texts = []
        self.logger = logging.getLogger("asyncio")
        self.was = self.logger.propagate, self.logger.level
        self.logger.propagate = False
        self.logger.setLevel(logging.INFO)
        self.logger.addHandler(self)
        return self

    def __exit__(self, *exc_info):
        self.logger.removeHandler(self)
        self.logger.propagate, level = self.was
        self.logger.setLevel(level)

    def emit(self, record):
        self.texts.append(self.format(record))

    def about(self, words):
        assert any(words in text for text in self.texts), f"{words!r} not in the log"


@row("set_exception_handler(handler=), get_exception_handler()")
async def handler(loop):
    given = []

    def handler(*args):
        given.append(args)

    loop.set_exception_handler(handler)
    equal(loop.get_exception_handler(), handler)
    loop.call_soon(fail)
    await turns()
    (where, context), = given
    assert where is loop, "another loop"
    kind_of(context["exception"], LookupError)


@row("set_exception_handler() refuses what cannot be called")
async def wrong_handler(loop):
    with raises(TypeError):
        loop.set_exception_handler("no")


@row("the handle that failed is in the context")
async def handle(loop):
    given = []
    loop.set_exception_handler(lambda loop, context: given.append(context))
    handle = loop.call_soon(fail)
    await turns()
    assert given[0].get("handle") is handle, f"it has {sorted(given[0])}"


@row("call_exception_handler(context=)")
async def call_handler(loop):
    given = []
    loop.set_exception_handler(lambda loop, context: given.append(context))
    loop.call_exception_handler({"message": "mine"})
    equal(given, [{"message": "mine"}])


@row("default_exception_handler(context=) logs to 'asyncio'")
async def default_handler(loop):
    with Records() as records:
        loop.default_exception_handler({"message": "called by itself"})
        loop.set_exception_handler(None)
        equal(loop.get_exception_handler(), None)
        loop.call_soon(fail)
        await turns()
    records.about("called by itself")
    records.about("LookupError")


@row("an exception handler that fails is logged")
async def failing_handler(loop):
    def handler(loop, context):
        raise RuntimeError("the handler's own")

    loop.set_exception_handler(handler)
    with Records() as records:
        loop.call_soon(fail)
        await turns()
    records.about("the handler's own")


@row("an exception in a callback does not stop the loop")
async def goes_on(loop):
    ran, given = [], []
    loop.set_exception_handler(lambda loop, context: given.append(context))
    loop.call_soon(fail)
    loop.call_soon(ran.append, 1)
    await turns()
    equal((ran, len(given)), ([1], 1))


@row("SystemExit in a callback leaves run_forever(), and the rest still runs")
def system_exit(loop):
    def leave():
        raise SystemExit(3)

    ran = []
    loop.call_soon(leave)
    loop.call_soon(ran.append, 1)
    with raises(SystemExit):
        loop.run_forever()
    loop.call_soon(loop.stop)
    loop.run_forever()
    equal(ran, [1])


@row("debug mode: slow callbacks are logged, slow_callback_duration")
async def slow(loop):
    loop.set_debug(True)
    loop.slow_callback_duration = 0.01
    with Records() as records:
        loop.call_soon(time.sleep, 0.03)
        await turns()
    records.about("sleep")
    records.about("took 0.")


@row("debug mode: call_soon() from another thread is a RuntimeError")
async def wrong_thread(loop):
    loop.set_debug(True)
    raised = []

    def call():
        for method, arguments in ((loop.call_soon, (int,)), (loop.call_later, (0, int))):
            try:
                method(*arguments)
            except RuntimeError as exc:
                raised.append(exc)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    loop.set_debug(False)
    equal(len(raised), 2, "RuntimeErrors")


@row("debug mode: coroutines as callbacks are a TypeError")
async def coroutine_as_callback(loop):
    loop.set_debug(True)
    with raises(TypeError):
        loop.call_soon(turns)
    loop.set_debug(False)


@row("debug mode: the report says where the callback was scheduled")
async def source(loop):
    given = []
    loop.set_exception_handler(lambda loop, context: given.append(context))
    loop.set_debug(True)
    loop.call_soon(fail)
    await turns()
    loop.set_debug(False)
    trace = given[0].get("source_traceback")
    assert trace and trace[-1].name == "source", f"it has {sorted(given[0])}"


@row("a task's exception that nobody fetches is reported")
async def never_retrieved(loop):
    async def fails():
        fail()

    given = []
    loop.set_exception_handler(lambda loop, context: given.append(context))
    task = asyncio.ensure_future(fails())
    await turns()
    del task
    equal([type(context.get("exception")) for context in given], [LookupError])
