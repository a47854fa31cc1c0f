"""The poller: slots, generations, waking, and descriptors that change behind its back."""
import os
import socket
import threading
import time

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from poller_door import ET, IN, ONESHOT, OUT, Probe, Set


@pytest.fixture
def pollers():
    made = Set()
    yield made
    made.close()


@pytest.fixture
def pair():
    a, b = socket.socketpair()
    a.setblocking(False)
    yield a, b
    a.close()
    b.close()


class SlotModel(RuleBasedStateMachine):
    """Sockets that open, close, and reuse each other's numbers: events reach their own watcher."""

    def __init__(self):
        super().__init__()
        self.pollers = Set()
        self.open = []       # (probe, ours, peer, readable)

    @rule()
    def connect(self):
        ours, peer = socket.socketpair()
        probe = Probe(ours.fileno())
        self.pollers.add(probe, IN)
        self.open.append([probe, ours, peer, False])

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def send(self, data):
        entry = data.draw(st.sampled_from(self.open))
        entry[2].send(b"x")
        entry[3] = True

    @precondition(lambda self: self.open)
    @rule(data=st.data(), tidy=st.booleans())
    def close(self, data, tidy):
        entry = data.draw(st.sampled_from(self.open))
        self.open.remove(entry)
        self.pollers.remove(entry[0])
        for end in entry[1:3]:
            end.close()

    @rule()
    def poll(self):
        before = [len(entry[0].seen) for entry in self.open]
        self.pollers.poll()
        for entry, seen in zip(self.open, before, strict=True):
            assert len(entry[0].seen) - seen == entry[3]

    @invariant()
    def slots_hold_the_open_ones(self):
        assert set(self.pollers.watchers()) == {entry[0] for entry in self.open}
        for probe, ours, _, _ in self.open:
            assert self.pollers.at(ours.fileno()) is probe

    def teardown(self):
        for entry in self.open:
            for end in entry[1:3]:
                end.close()
        self.pollers.close()


TestSlotModel = SlotModel.TestCase
TestSlotModel.settings = settings(max_examples=40, stateful_step_count=50, deadline=None)


def test_a_number_closed_without_remove_and_reused_can_be_watched_again(pollers):
    a, b = socket.socketpair()
    number = a.fileno()
    old = Probe(number)
    pollers.add(old, IN)
    a.close()
    c, d = socket.socketpair()
    assert c.fileno() == number
    new = Probe(number)
    pollers.add(new, IN)
    d.send(b"x")
    pollers.poll()
    assert new.seen
    assert not old.seen
    for end in (b, c, d):
        end.close()


def test_modify_finds_out_that_the_number_names_another_file(pollers):
    a, b = socket.socketpair()
    probe = Probe(a.fileno())
    pollers.add(probe, IN | ONESHOT)
    a.close()
    c, d = socket.socketpair()
    d.send(b"x")
    pollers.modify(probe, IN | ONESHOT)
    pollers.poll()
    assert probe.seen
    for end in (b, c, d):
        end.close()


def test_an_entry_left_behind_by_a_duplicate_is_lost_for_good(pollers):
    a, b = socket.socketpair()
    probe, other = Probe(a.fileno()), Probe(b.fileno())
    pollers.add(probe, IN)
    pollers.add(other, OUT)
    duplicate = os.dup(a.fileno())
    a.close()
    pollers.remove(probe)       # too late: the kernel keeps reporting the open file
    b.send(b"x")
    pollers.poll()
    polls_of_other = len(other.seen)
    before = pollers.counters["events"]
    pollers.poll()
    assert not probe.seen
    assert pollers.counters["events"] - before == 1, "the stale entry is still reported"
    assert len(other.seen) > polls_of_other, "the others must survive the new set"
    os.close(duplicate)
    b.close()


def test_suspend_keeps_the_slot_and_modify_brings_it_back(pollers, pair):
    probe = Probe(pair[0].fileno())
    pollers.add(probe, IN)
    pollers.suspend(probe)
    pair[1].send(b"x")
    pollers.poll()
    assert not probe.seen
    assert pollers.at(pair[0].fileno()) is probe
    pollers.modify(probe, IN)
    pollers.poll()
    assert probe.seen == [IN]


def test_modify_to_nothing_is_silence(pollers, pair):
    probe = Probe(pair[0].fileno())
    pollers.add(probe, IN)
    pollers.modify(probe, 0)
    pair[1].close()     # HUP cannot be masked, so an entry without events would report it
    pollers.poll()
    assert not probe.seen
    assert not probe.is_registered


def test_errors_are_those_of_epoll_ctl(pollers, tmp_path):
    with open(tmp_path / "regular", "w") as file, pytest.raises(PermissionError):
        pollers.add(Probe(file.fileno()), IN)
    with pytest.raises(OSError, match="Bad file descriptor"):
        pollers.add(Probe(1_000_000), IN)
    assert pollers.watchers() == []


@pytest.mark.parametrize("wait", ["wait", "wait_without_pwait2"])
def test_a_wake_ends_a_wait_and_costs_one_write(pollers, wait):
    for _ in range(3):      # never read, and each write is an edge
        thread = threading.Timer(0.05, lambda: [pollers.wake() for _ in range(10)])
        thread.start()
        began = time.monotonic()
        getattr(pollers, wait)(5.0)
        assert time.monotonic() - began < 2
        thread.join()
    assert pollers.counters["written"] == 3
    assert pollers.counters["avoided"] == 27


def test_a_wake_while_awake_writes_nothing(pollers):
    pollers.wake()
    assert pollers.counters["written"] == 0
    began = time.monotonic()
    pollers.wait(0.02)
    assert time.monotonic() - began >= 0.02


@pytest.mark.parametrize("wait", ["wait", "wait_without_pwait2"])
@pytest.mark.parametrize("seconds", [0.0002, 0.0013, 0.0101])
def test_a_wait_is_never_shorter_than_asked(pollers, wait, seconds):
    for _ in range(20):
        began = time.monotonic()
        getattr(pollers, wait)(seconds)
        assert time.monotonic() - began >= seconds


def test_the_set_holds_no_epoll_set(pollers, pair):
    pollers.add(Probe(pair[0].fileno()), IN | ET)
    with open(f"/proc/self/fdinfo/{pollers.epoll_fd}") as info:
        watched = [int(line.split()[1]) for line in info if line.startswith("tfd:")]
    kinds = [os.readlink(f"/proc/self/fd/{fd}") for fd in watched]
    assert len(kinds) == 2
    assert not [kind for kind in kinds if "eventpoll" in kind]
    assert not os.get_inheritable(pollers.epoll_fd)


def test_a_forked_child_has_a_set_of_its_own(pollers, pair):
    probe = Probe(pair[0].fileno())
    pollers.add(probe, IN)
    pid = os.fork()
    if pid == 0:
        pollers.remove(probe)
        pollers.poll()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    pair[1].send(b"x")
    pollers.poll()
    assert probe.seen == [IN], "the child took the parent's registration away"


def test_a_forked_child_goes_on_with_everything_registered(pollers, pair):
    probe = Probe(pair[0].fileno())
    pollers.add(probe, IN)
    pid = os.fork()
    if pid == 0:
        pair[1].send(b"x")
        pollers.poll()
        os._exit(0 if probe.seen == [IN] else 1)
    assert os.waitpid(pid, 0)[1] == 0
