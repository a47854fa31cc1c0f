"""Descriptors are closed once, and are not inherited."""
import asyncio
import gc
import os
import socket
import subprocess
import sys

import pytest
from support.guards import open_descriptors
from support.loops import differs_from_asyncio, without_debug
from support.net import BIG, LOOPBACK, attach, socket_pair
from support.protocols import Echo, Recorder
from support.waiting import is_idle, quiet, turns


def new_since(before):
    return {fd: what for fd, what in open_descriptors().items() if fd not in before}


def test_descriptors_of_a_loop_are_not_inherited(loop_factory):
    before = open_descriptors()
    loop = loop_factory()
    loop.run_until_complete(asyncio.sleep(0.001))
    ours = new_since(before)
    assert ours
    for fd, what in ours.items():
        assert not os.get_inheritable(fd), what


async def test_descriptors_of_servers_and_connections_are_not_inherited(loop):
    before = open_descriptors()
    server = await loop.create_server(Echo, LOOPBACK, 0)
    transport, protocol = await loop.create_connection(
        Recorder, *server.sockets[0].getsockname()
    )
    transport.write(b"x")
    await protocol.until_received(1)
    ours = new_since(before)
    assert len(ours) >= 3
    for fd, what in ours.items():
        assert not os.get_inheritable(fd), what
    code = "import os; print(*sorted(map(int, os.listdir('/proc/self/fd'))))"
    child = subprocess.run(
        [sys.executable, "-S", "-c", code], close_fds=False, capture_output=True, check=True
    )
    assert not set(ours) & set(map(int, child.stdout.split()))
    transport.close()
    await protocol.until_lost()
    server.close()
    await quiet()


def test_close_gives_every_descriptor_back(loop_factory):
    before = open_descriptors()
    for _ in range(20):
        loop = loop_factory()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
    assert open_descriptors() == before


@without_debug("many connections")
async def test_no_descriptor_is_lost_over_many_connections(loop, kind):
    before = open_descriptors()
    for _ in range(300):
        near, far = socket_pair(kind)
        transport, protocol = await attach(loop, near, Recorder)
        far.send(b"x")
        await protocol.until_received(1)
        transport.close()
        await protocol.until_lost()
        await turns(1)
        far.close()
    assert open_descriptors() == before


async def test_number_is_not_closed_twice(loop, kind):
    """The number is taken by somebody else as soon as the transport has let go of it."""
    for _ in range(20):
        near, far = socket_pair(kind)
        number = near.fileno()
        transport, protocol = await attach(loop, near, Recorder)
        far.close()
        await protocol.until_lost()
        await turns(1)
        taken = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        if taken != number:
            os.dup2(taken, number, inheritable=False)
            os.close(taken)
        transport.close()
        transport.abort()
        del transport, protocol, near
        gc.collect()
        await turns()
        os.fstat(number)        # still open
        os.close(number)


async def test_socket_closed_behind_the_back_of_its_transport(loop, kind, unhandled):
    """A mistake of the user; the number's next owner must not suffer from it."""
    near, far = socket_pair(kind)
    transport, protocol = await attach(loop, near, Recorder)
    far.send(b"x")
    await protocol.until_received(1)
    near.close()
    transport.abort()
    await protocol.until_lost()
    far.close()
    unhandled.take()


@differs_from_asyncio("its selector may report the duplicate again and again")
async def test_descriptor_closed_behind_the_back_while_a_duplicate_reports(loop, kind, unhandled):
    """The mistake is reported; the loop goes on, and does not spin."""
    near, far = socket_pair(kind)
    twin = near.dup()
    transport, protocol = await attach(loop, near, Recorder)
    transport.pause_reading()
    transport.write(b"x" * (4 * BIG))
    await turns()
    os.close(near.detach())
    far.send(b"unwanted")
    await quiet()
    assert await is_idle(loop, 0.1)
    transport.abort()
    await protocol.until_lost()
    twin.close()
    far.close()
    unhandled.take()


async def test_failed_connects_lose_nothing(loop):
    with socket.socket() as sock:
        sock.bind((LOOPBACK, 0))
        before = open_descriptors()
        for _ in range(20):
            with pytest.raises(ConnectionRefusedError):
                await loop.create_connection(Recorder, *sock.getsockname())
        assert open_descriptors() == before


def test_no_epoll_descriptor_is_watched_by_another(loop_factory):
    """Nested sets make every change take a lock of the whole kernel."""
    before = open_descriptors()
    loop = loop_factory()
    loop.run_until_complete(asyncio.sleep(0.001))
    ours = new_since(before)
    sets = {fd for fd, what in ours.items() if "eventpoll" in what}
    assert len(sets) == 1
    with open(f"/proc/self/fdinfo/{sets.pop()}") as file:
        watched = [int(line.split()[1]) for line in file if line.startswith("tfd")]
    assert not any("eventpoll" in ours.get(fd, "") for fd in watched)
