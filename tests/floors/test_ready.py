"""The ready queue: order, growth, and posts from other threads."""
import gc
import threading
import weakref

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from ready_door import Ready


class ReadyModel(RuleBasedStateMachine):
    """Pushes, posts and pops: a posted job keeps its place before what is pushed later."""

    def __init__(self):
        super().__init__()
        self.queue = Ready()
        self.ready = []
        self.posted = []

    @rule(tag=st.integers())
    def push(self, tag):
        self.queue.push(tag)
        self.ready += [*self.posted, tag]
        self.posted = []

    @rule(tag=st.integers())
    def post(self, tag):
        assert self.queue.post(tag)
        self.posted.append(tag)

    @rule()
    def collect(self):
        self.queue.collect()
        self.ready += self.posted
        self.posted = []

    @precondition(lambda self: self.ready)
    @rule()
    def pop(self):
        assert self.queue.popleft() == self.ready.pop(0)

    @invariant()
    def same(self):
        assert len(self.queue) == len(self.ready)
        assert self.queue.has_posted() == bool(self.posted)


TestReadyModel = ReadyModel.TestCase
TestReadyModel.settings = settings(max_examples=60, stateful_step_count=80, deadline=None)


def test_it_grows_with_the_head_anywhere():
    queue = Ready()
    for i in range(40):
        queue.push(i)
    for i in range(30):
        assert queue.popleft() == i
    for i in range(40, 300):
        queue.push(i)
    assert [queue.popleft() for _ in range(len(queue))] == list(range(30, 300))


def test_closing_drops_everything_and_refuses_posts():
    class Tag:
        pass

    queue, pushed, posted = Ready(), Tag(), Tag()
    gone = weakref.ref(pushed), weakref.ref(posted)
    queue.push(pushed)
    queue.post(posted)
    del pushed, posted
    queue.close()
    assert [ref() for ref in gone] == [None, None]
    assert not queue.post("late")
    queue.collect()
    assert len(queue) == 0


class PushesAtTheEnd:
    """Pushes `tags` when it is freed."""

    def __init__(self, queue, tags):
        self.queue = queue
        self.tags = tags
        self.cycle = self

    def __del__(self):
        for tag in self.tags:
            self.queue.push(tag)


def test_finalizers_of_what_close_drops_may_push():
    queue = Ready()
    for i in range(1000):
        queue.push(i)
    tag = PushesAtTheEnd(queue, ["late"])
    tag.cycle = None
    queue.push(tag)
    del tag
    queue.close()
    assert queue.popleft() == "late"


@pytest.mark.parametrize("others", [1, 100])
def test_finalizers_may_push_while_it_grows(others):
    """Before Python 3.12 the garbage collector runs within an allocation."""
    queue, spare = Ready(), Ready()
    for i in range(64):
        queue.push(i)
    # Memory of former objects is used again without a look at the garbage: a handle's is to be
    # had, a list's is not.
    spare.push("spare")
    spare.popleft()
    tags = ["garbage"] * others
    kept = [[] for _ in range(200)]
    PushesAtTheEnd(queue, tags)
    threshold = gc.get_threshold()
    gc.set_threshold(1)
    try:
        queue.push("last")
    finally:
        gc.set_threshold(*threshold)
    assert queue.fits()
    gc.collect()
    for i in range(64, 1000):
        queue.push(i)
    found = [queue.popleft() for _ in range(len(queue))]
    assert [tag for tag in found if type(tag) is int] == list(range(1000))
    assert found.count("garbage") == others
    assert found.count("last") == 1
    assert kept


def test_the_garbage_collector_sees_what_is_queued():
    class Tag:
        pass

    queue, tag = Ready(), Tag()
    tag.cycle = queue
    gone = weakref.ref(tag)
    queue.push(tag)
    del queue, tag
    gc.collect()
    assert gone() is None


def test_posts_of_many_threads_all_arrive_in_each_thread_s_order():
    queue = Ready()

    def post(thread):
        for i in range(2000):
            queue.post((thread, i))

    threads = [threading.Thread(target=post, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    got = []
    while len(got) < 8000:
        queue.collect()
        got += [queue.popleft() for _ in range(len(queue))]
    for thread in threads:
        thread.join()
    for n in range(4):
        assert [i for thread, i in got if thread == n] == list(range(2000))
