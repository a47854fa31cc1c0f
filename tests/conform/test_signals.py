"""Signal handlers, Ctrl-C and the wake-up descriptor."""
import asyncio
import functools
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from support.loops import differs_from_asyncio, only_in_debug
from support.waiting import in_thread, until

USR1, USR2 = signal.SIGUSR1, signal.SIGUSR2

sleeps_on = differs_from_asyncio("without a handler of its own it is not woken by other threads")


def kill_self(signum):
    os.kill(os.getpid(), signum)


async def test_handler_is_called_with_its_arguments(loop):
    got = []
    loop.add_signal_handler(USR1, lambda *args: got.append(args), 1, "two")
    kill_self(USR1)
    await until(lambda: got)
    assert got == [(1, "two")]
    assert loop.remove_signal_handler(USR1) is True


async def test_handler_is_called_once_for_each_signal(loop):
    got = []
    loop.add_signal_handler(USR1, got.append, 1)
    for i in range(1, 6):
        kill_self(USR1)
        await until(lambda i=i: len(got) == i)
    loop.remove_signal_handler(USR1)


async def test_handlers_of_two_signals(loop):
    got = []
    loop.add_signal_handler(USR1, got.append, "one")
    loop.add_signal_handler(USR2, got.append, "two")
    kill_self(USR1)
    kill_self(USR2)
    await until(lambda: len(got) == 2)
    assert sorted(got) == ["one", "two"]
    loop.remove_signal_handler(USR1)
    loop.remove_signal_handler(USR2)


async def test_handler_runs_inside_the_loop(loop):
    got = []
    loop.add_signal_handler(USR1, lambda: got.append(asyncio.get_running_loop()))
    kill_self(USR1)
    await until(lambda: got)
    assert got == [loop]
    loop.remove_signal_handler(USR1)


def test_idle_loop_is_woken(loop):
    loop.add_signal_handler(USR1, loop.stop)
    timer = threading.Timer(0.01, kill_self, (USR1,))
    timer.start()
    loop.run_forever()
    timer.join()
    loop.remove_signal_handler(USR1)


def test_signal_delivered_to_another_thread_wakes_the_loop(loop):
    loop.add_signal_handler(USR1, loop.stop)

    def deliver():
        time.sleep(0.01)
        signal.pthread_kill(threading.get_ident(), USR1)

    with in_thread(deliver):
        loop.run_forever()
    loop.remove_signal_handler(USR1)


@sleeps_on
def test_python_handler_runs_while_the_loop_is_idle(loop):
    """Without a handler of the loop: the wake-up alone must get Python's own handler run."""
    got = []

    def handler(signum, frame):
        got.append(signum)
        loop.call_soon_threadsafe(loop.stop)

    before = signal.signal(USR1, handler)

    def deliver():
        time.sleep(0.01)
        signal.pthread_kill(threading.get_ident(), USR1)

    try:
        loop.call_later(5, loop.stop)
        started = time.monotonic()
        with in_thread(deliver):
            loop.run_forever()
        assert time.monotonic() - started < 4
    finally:
        signal.signal(USR1, before)
    assert got == [USR1]


async def test_second_handler_replaces_the_first(loop):
    got = []
    loop.add_signal_handler(USR1, got.append, "first")
    loop.add_signal_handler(USR1, got.append, "second")
    kill_self(USR1)
    await until(lambda: got)
    assert got == ["second"]
    loop.remove_signal_handler(USR1)


async def test_python_handler_in_the_place_of_the_loops(loop):
    """Both are called: a server that takes signals for a while does not silence its program."""
    got, taken = [], []
    loop.add_signal_handler(USR1, got.append, 1)
    ours = signal.signal(USR1, lambda signum, frame: taken.append(signum))
    kill_self(USR1)
    await until(lambda: got)
    assert (got, taken) == ([1], [USR1])
    signal.signal(USR1, ours)
    kill_self(USR1)
    await until(lambda: len(got) == 2)
    assert taken == [USR1]
    loop.remove_signal_handler(USR1)
    signal.signal(USR1, signal.SIG_IGN)
    kill_self(USR1)
    signal.signal(USR1, signal.SIG_DFL)


async def test_remove_tells_whether_there_was_one(loop):
    assert loop.remove_signal_handler(USR1) is False
    loop.add_signal_handler(USR1, print)
    assert loop.remove_signal_handler(USR1) is True
    assert loop.remove_signal_handler(USR1) is False


async def test_remove_restores_the_default_action(loop):
    loop.add_signal_handler(USR1, print)
    assert signal.getsignal(USR1) != signal.SIG_DFL
    loop.remove_signal_handler(USR1)
    assert signal.getsignal(USR1) == signal.SIG_DFL


async def test_remove_restores_ctrl_c(loop):
    loop.add_signal_handler(signal.SIGINT, print)
    loop.remove_signal_handler(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) == signal.default_int_handler


def test_close_removes_the_handlers(loop):
    loop.add_signal_handler(USR1, print)
    loop.add_signal_handler(USR2, print)
    loop.close()
    assert signal.getsignal(USR1) == signal.SIG_DFL
    assert signal.getsignal(USR2) == signal.SIG_DFL


@pytest.mark.parametrize("bad", [0, -1, 1000, signal.NSIG])
@pytest.mark.parametrize("method", ["add_signal_handler", "remove_signal_handler"])
def test_number_that_is_no_signal_is_refused(loop, method, bad):
    args = (print,) if method.startswith("add") else ()
    with pytest.raises(ValueError, match="signal number"):
        getattr(loop, method)(bad, *args)


@pytest.mark.parametrize("bad", ["SIGUSR1", None, 1.5])
@pytest.mark.parametrize("method", ["add_signal_handler", "remove_signal_handler"])
def test_signal_must_be_a_number(loop, method, bad):
    args = (print,) if method.startswith("add") else ()
    with pytest.raises(TypeError):
        getattr(loop, method)(bad, *args)


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGSTOP])
def test_signal_that_cannot_be_caught_is_refused(loop, signum):
    with pytest.raises(RuntimeError, match="cannot be caught"):
        loop.add_signal_handler(signum, print)
    assert loop.remove_signal_handler(signum) is False


def test_coroutines_are_refused(loop):
    async def handler():
        pass

    with pytest.raises(TypeError, match="coroutines cannot be used"):
        loop.add_signal_handler(USR1, handler)
    coro = handler()
    with pytest.raises(TypeError, match="coroutines cannot be used"):
        loop.add_signal_handler(USR1, coro)
    coro.close()
    assert signal.getsignal(USR1) == signal.SIG_DFL


def test_closed_loop_refuses_handlers(loop):
    loop.close()
    with pytest.raises(RuntimeError, match="Event loop is closed"):
        loop.add_signal_handler(USR1, print)


def test_other_threads_cannot_add_handlers(loop):
    def add():
        with pytest.raises((RuntimeError, ValueError)):
            loop.add_signal_handler(USR1, print)

    with in_thread(add):
        pass
    assert signal.getsignal(USR1) == signal.SIG_DFL


async def test_exception_in_a_handler_is_reported(loop, unhandled):
    loop.add_signal_handler(USR1, lambda: 1 / 0)
    kill_self(USR1)
    await until(lambda: len(unhandled))
    assert isinstance(unhandled.take_one()["exception"], ZeroDivisionError)
    loop.remove_signal_handler(USR1)


@only_in_debug
async def test_debug_mode_changes_nothing_for_signals(loop):
    got = []
    loop.add_signal_handler(USR1, got.append, 1)
    kill_self(USR1)
    await until(lambda: got)
    loop.remove_signal_handler(USR1)


def test_handler_added_before_the_run(loop):
    loop.add_signal_handler(USR1, loop.stop)
    kill_self(USR1)
    loop.call_later(5, loop.stop)
    started = time.monotonic()
    loop.run_forever()
    assert time.monotonic() - started < 4
    loop.remove_signal_handler(USR1)


def test_signal_between_two_runs_is_not_lost(loop):
    got = []
    loop.add_signal_handler(USR1, got.append, 1)
    loop.run_until_complete(asyncio.sleep(0))
    kill_self(USR1)
    loop.run_until_complete(asyncio.sleep(0.01))
    assert got == [1]
    loop.remove_signal_handler(USR1)


@differs_from_asyncio("what does not fit into its wake-up socket is lost")
async def test_no_kind_of_signal_is_lost_in_a_storm(loop):
    got = {USR1: 0, USR2: 0}

    def count(signum):
        got[signum] += 1

    loop.add_signal_handler(USR1, count, USR1)
    loop.add_signal_handler(USR2, count, USR2)
    for _ in range(2000):
        kill_self(USR1)
    kill_self(USR2)
    await until(lambda: got[USR1] and got[USR2])
    loop.remove_signal_handler(USR1)
    loop.remove_signal_handler(USR2)


def test_ctrl_c_ends_an_idle_loop(loop):
    timer = threading.Timer(0.01, kill_self, (signal.SIGINT,))
    loop.call_soon(timer.start)
    with pytest.raises(KeyboardInterrupt):
        loop.run_forever()
    timer.join()
    assert not loop.is_running()
    loop.run_until_complete(asyncio.sleep(0))


@sleeps_on
def test_ctrl_c_delivered_to_another_thread_ends_an_idle_loop(loop):
    running = threading.Event()
    loop.call_soon(running.set)

    def deliver():
        running.wait()
        time.sleep(0.01)
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    with in_thread(deliver), pytest.raises(KeyboardInterrupt):
        loop.run_forever()


def test_ctrl_c_ends_a_loop_that_waits_for_a_timer(loop):
    loop.call_later(3600, print)
    timer = threading.Timer(0.01, kill_self, (signal.SIGINT,))
    loop.call_soon(timer.start)
    with pytest.raises(KeyboardInterrupt):
        loop.run_forever()
    timer.join()


def test_ctrl_c_ends_a_busy_loop(loop):
    """No Python code runs in this loop: a C callable schedules itself over and over."""
    again = functools.partial(loop.call_soon)
    again.__setstate__((loop.call_soon, (again,), {}, {}))
    again()
    command = f"read go; sleep 0.01; kill -INT {os.getpid()}"
    with subprocess.Popen(["sh", "-c", command], stdin=subprocess.PIPE) as child:
        loop.call_soon(os.write, child.stdin.fileno(), b"go\n")
        with pytest.raises(KeyboardInterrupt):
            loop.run_forever()
    again.__setstate__((int, (), {}, {}))


def test_ctrl_c_keeps_the_later_callbacks(loop):
    ran = []
    loop.call_soon(kill_self, signal.SIGINT)
    for i in range(10):
        loop.call_soon(ran.append, i)
    with pytest.raises(KeyboardInterrupt):
        loop.run_forever()
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert ran == list(range(10))


def test_ctrl_c_can_be_handled_by_the_loop(loop):
    got = []
    loop.add_signal_handler(signal.SIGINT, lambda: (got.append(1), loop.stop()))
    timer = threading.Timer(0.01, kill_self, (signal.SIGINT,))
    timer.start()
    loop.run_forever()
    timer.join()
    assert got == [1]
    loop.remove_signal_handler(signal.SIGINT)


def test_wakeup_descriptor_of_somebody_else_is_restored(loop):
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        signal.set_wakeup_fd(near.fileno())
        try:
            loop.run_until_complete(asyncio.sleep(0.001))
            assert signal.set_wakeup_fd(near.fileno()) == near.fileno()
        finally:
            signal.set_wakeup_fd(-1)


def test_no_wakeup_descriptor_is_left_behind_by_close(loop):
    loop.add_signal_handler(USR1, print)
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    assert signal.set_wakeup_fd(-1) == -1


def test_loop_in_another_thread_leaves_signals_alone(loop):
    before = signal.set_wakeup_fd(-1)

    def run():
        loop.run_until_complete(asyncio.sleep(0.002))

    with in_thread(run):
        pass
    assert signal.set_wakeup_fd(-1) == before == -1


def test_two_loops_one_after_another_both_get_signals(loop_factory):
    for _ in range(2):
        loop = loop_factory()
        loop.add_signal_handler(USR1, loop.stop)
        loop.call_later(0.002, kill_self, USR1)
        loop.run_forever()
        loop.close()


def test_system_calls_are_restarted_after_a_handled_signal(loop):
    """As asyncio does with siginterrupt(False): a blocking read elsewhere is not disturbed."""
    read_fd, write_fd = os.pipe()
    loop.add_signal_handler(USR1, print)
    got = []

    def read():
        got.append(os.read(read_fd, 10))

    with in_thread(read) as thread:
        signal.pthread_kill(thread.ident, USR1)
        time.sleep(0.01)
        os.write(write_fd, b"x")
    assert got == [b"x"]
    loop.remove_signal_handler(USR1)
    os.close(read_fd)
    os.close(write_fd)


def test_child_process_starts_with_default_signals(loop):
    loop.add_signal_handler(USR1, print)
    loop.run_until_complete(asyncio.sleep(0))
    code = "import signal; print(signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL, " \
           "signal.pthread_sigmask(signal.SIG_BLOCK, []))"
    output = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, check=True)
    assert output.stdout.split() == [b"True", b"set()"]
    loop.remove_signal_handler(USR1)


def test_no_signal_is_blocked_while_the_loop_runs(loop):
    async def main():
        await asyncio.sleep(0.001)
        return signal.pthread_sigmask(signal.SIG_BLOCK, [])

    assert loop.run_until_complete(main()) == set()
