"""Signals, and Ctrl-C."""
import asyncio
import os
import signal
import threading
import time

from support.waiting import quiet, soon, turns

from surface.checks import equal, raises, within
from surface.rows import subject

row = subject("Signals")


def send_soon(number=signal.SIGUSR1, delay=0.02):
    timer = threading.Timer(delay, os.kill, (os.getpid(), number))
    timer.start()
    return timer


class Handler:
    """Python's own handler of a signal, meanwhile."""

    def __init__(self, number, function):
        self.number, self.function = number, function

    def __enter__(self):
        self.before = signal.signal(self.number, self.function)

    def __exit__(self, *exc_info):
        signal.signal(self.number, self.before)


@row("add_signal_handler(sig=, callback=, *args=) wakes an idle loop")
async def add(loop):
    came = loop.create_future()
    loop.add_signal_handler(signal.SIGUSR1, lambda *args: came.set_result(args), 1, 2)
    try:
        timer = send_soon()
        with within(1):
            equal(await soon(came), (1, 2))
        timer.join()
    finally:
        loop.remove_signal_handler(signal.SIGUSR1)


@row("remove_signal_handler(sig=) tells whether there was one, and restores the default")
async def remove(loop):
    loop.add_signal_handler(signal.SIGUSR1, int)
    equal(loop.remove_signal_handler(signal.SIGUSR1), True)
    equal(loop.remove_signal_handler(signal.SIGUSR1), False)
    equal(signal.getsignal(signal.SIGUSR1), signal.SIG_DFL)
    await turns()


@row("a second handler replaces the first")
async def replace(loop):
    ran = []
    loop.add_signal_handler(signal.SIGUSR1, ran.append, 1)
    loop.add_signal_handler(signal.SIGUSR1, ran.append, 2)
    os.kill(os.getpid(), signal.SIGUSR1)
    await quiet()
    loop.remove_signal_handler(signal.SIGUSR1)
    equal(ran, [2])


@row("signals that cannot be caught are refused with RuntimeError")
async def uncatchable(loop):
    with raises(RuntimeError):
        loop.add_signal_handler(signal.SIGKILL, int)


@row("what is no signal is refused")
async def no_signal(loop):
    with raises(ValueError):
        loop.add_signal_handler(1000, int)
    with raises(TypeError):
        loop.add_signal_handler("USR1", int)
    with raises(ValueError):
        loop.remove_signal_handler(1000)


@row("coroutines as signal handlers are refused with TypeError")
async def coroutine(loop):
    with raises(TypeError):
        loop.add_signal_handler(signal.SIGUSR1, turns)


@row("add_signal_handler() outside the main thread is refused")
async def other_thread(loop):
    raised = []

    def call():
        try:
            loop.add_signal_handler(signal.SIGUSR1, int)
        except (RuntimeError, ValueError) as exc:
            raised.append(exc)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    equal(len(raised), 1, "exceptions")


@row("Ctrl-C ends an idle loop at once")
def ctrl_c_idle(loop):
    with Handler(signal.SIGINT, signal.default_int_handler):
        timer = send_soon(signal.SIGINT)
        with raises(KeyboardInterrupt), within(1):
            loop.run_until_complete(asyncio.sleep(3))
        timer.join()


@row("Ctrl-C ends a loop that is always busy")
def ctrl_c_busy(loop):
    async def spin():
        end = time.monotonic() + 3
        while time.monotonic() < end:
            await asyncio.sleep(0)

    with Handler(signal.SIGINT, signal.default_int_handler):
        timer = send_soon(signal.SIGINT)
        with raises(KeyboardInterrupt), within(1):
            loop.run_until_complete(spin())
        timer.join()


@row("Ctrl-C with asyncio.Runner cancels the main task")
def ctrl_c_runner(kind):
    cancelled = []

    async def main():
        try:
            await asyncio.sleep(3)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    with Handler(signal.SIGINT, signal.default_int_handler):
        timer = send_soon(signal.SIGINT, 0.1)
        with (raises(KeyboardInterrupt), within(1),
              asyncio.Runner(loop_factory=kind.make) as runner):
            runner.run(main())
        timer.join()
    equal(cancelled, [True])


@row("KeyboardInterrupt loses no callback")
def nothing_lost(loop):
    def interrupt():
        raise KeyboardInterrupt

    ran = []
    loop.call_soon(interrupt)
    for number in range(3):
        loop.call_soon(ran.append, number)
    with raises(KeyboardInterrupt):
        loop.run_forever()
    loop.call_soon(loop.stop)
    loop.run_forever()
    equal(ran, [0, 1, 2])


@row("a handler of signal.signal() runs while the loop is idle")
async def plain_handler(loop):
    ran = []
    with Handler(signal.SIGUSR1, lambda *args: ran.append(time.monotonic())):
        began = time.monotonic()
        timer = send_soon()
        await asyncio.sleep(0.25)
        timer.join()
    assert ran and ran[0] - began < 0.2, "late"


@row("the wake-up descriptor of somebody else is restored")
def wakeup_fd(kind):
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    before = signal.set_wakeup_fd(writing)
    try:
        loop = kind.make()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
    finally:
        found = signal.set_wakeup_fd(before)
        os.close(reading)
        os.close(writing)
    equal(found, writing)


@row("the child of a loop with signal handlers starts with default signals")
async def child(loop):
    loop.add_signal_handler(signal.SIGUSR1, int)
    try:
        process = await asyncio.create_subprocess_exec(
            "/bin/sh", "-c", "kill -USR1 $$; echo survived")
        equal(await soon(process.wait()), -signal.SIGUSR1)
    finally:
        loop.remove_signal_handler(signal.SIGUSR1)
