"""A fork does not hurt the parent's loop, and the child can go on."""
import asyncio
import contextlib
import os
import signal
import socket
import sys
import traceback

import pytest
from support.loops import differs_from_asyncio
from support.net import connected
from support.protocols import Recorder
from support.waiting import PATIENCE_S, until

pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
shares = differs_from_asyncio("the child's clean-up removes the parent's registrations")


@contextlib.contextmanager
def forked(child):
    """Fork; the child runs `child()` and exits with 0, or 1 if that raised."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            signal.alarm(int(PATIENCE_S))
            child()
            status = 0
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(status)
    yield pid
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.fixture
def pair():
    near, far = socket.socketpair()
    near.setblocking(False)
    far.setblocking(False)
    with near, far:
        yield near, far


def test_child_may_exit_without_touching_the_loop(loop, pair):
    near, far = pair
    got = []
    loop.add_reader(near, lambda: got.append(near.recv(10)))
    with forked(lambda: None):
        pass
    far.send(b"x")

    async def main():
        await until(lambda: got)

    loop.run_until_complete(main())
    loop.remove_reader(near)


@shares
def test_child_may_remove_its_reader(loop, pair):
    near, far = pair
    got = []
    loop.add_reader(near, lambda: got.append(near.recv(10)))

    def child():
        assert loop.remove_reader(near) is True

    with forked(child):
        pass
    far.send(b"x")

    async def main():
        await until(lambda: got)

    loop.run_until_complete(main())
    loop.remove_reader(near)


@shares
def test_child_may_close_its_copy_of_a_stopped_loop(loop, pair):
    near, far = pair
    got = []
    loop.add_reader(near, lambda: got.append(near.recv(10)))
    loop.run_until_complete(asyncio.sleep(0))
    with forked(loop.close):
        pass
    far.send(b"x")

    async def main():
        await until(lambda: got)
        # Wake-ups of the parent work as before.
        await loop.run_in_executor(None, int)

    loop.run_until_complete(main())
    loop.remove_reader(near)


@shares
async def test_child_of_a_running_loop_may_close_its_transports(loop, kind):
    async with connected(loop, kind, Recorder) as (transport, protocol, peer):
        with forked(transport.abort):
            pass
        await peer.send(b"still served")
        assert await protocol.until_received(12) == b"still served"
        transport.write(b"x")
        assert await peer.recv_exactly(1) == b"x"


@differs_from_asyncio("both processes read from the same epoll set")
def test_child_may_go_on_with_its_copy_of_the_loop(loop):
    loop.run_until_complete(asyncio.sleep(0))

    def child():
        async def main():
            near, far = socket.socketpair()
            near.setblocking(False)
            got = []
            loop.add_reader(near, lambda: got.append(near.recv(10)))
            far.send(b"x")
            await until(lambda: got)
            loop.remove_reader(near)
            near.close()
            far.close()
            assert await loop.run_in_executor(None, int) == 0
            await asyncio.sleep(0.001)

        loop.run_until_complete(main())
        loop.close()

    with forked(child):
        # The parent waits at the same time, and sees no event of the child.
        loop.run_until_complete(asyncio.sleep(0.05))

    async def main():
        return await loop.run_in_executor(None, int)

    assert loop.run_until_complete(main()) == 0


async def test_child_of_a_running_loop_may_use_a_new_one(loop, loop_factory):
    def child():
        asyncio._set_running_loop(None)
        new = loop_factory()
        assert new.run_until_complete(asyncio.sleep(0.001, 5)) == 5
        new.close()

    with forked(child):
        pass
    await asyncio.sleep(0.001)


def test_child_may_use_a_new_loop_in_place_of_a_closed_one(loop_spec, loop):
    loop.run_until_complete(asyncio.sleep(0))

    def child():
        new = loop_spec.make()
        assert new.run_until_complete(asyncio.sleep(0.001, 5)) == 5
        new.close()

    with forked(child):
        pass
    assert loop.run_until_complete(asyncio.sleep(0.001, 6)) == 6


@shares
def test_signals_of_the_child_stay_there(loop):
    """A child with a handler of its own does not write into the parent's wake-up pipe."""
    got = []
    loop.add_signal_handler(signal.SIGUSR1, got.append, 1)
    loop.run_until_complete(asyncio.sleep(0))

    def child():
        os.kill(os.getpid(), signal.SIGUSR1)

    with forked(child):
        pass
    loop.run_until_complete(asyncio.sleep(0.01))
    assert got == []
    loop.remove_signal_handler(signal.SIGUSR1)


def test_asyncio_run_in_the_child_of_a_running_loop(loop_spec, loop):
    """What multiprocessing does inside a coroutine."""
    async def main():
        def child():
            asyncio._set_running_loop(None)
            with asyncio.Runner(loop_factory=loop_spec.make) as runner:
                assert runner.run(asyncio.sleep(0.001, 5)) == 5

        with forked(child):
            pass
        return await asyncio.sleep(0.001, 6)

    assert loop.run_until_complete(main()) == 6
