"""The timer heap against a sorted list."""
import gc
import heapq
import weakref

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from timers_door import Heap


class HeapModel(RuleBasedStateMachine):
    """Push, pop and cancel in any order: always the earliest, equal ones as they came."""

    def __init__(self):
        super().__init__()
        self.heap = Heap()
        self.model = []     # (when, sequence, timer)
        self.sequence = 0

    @rule(when=st.one_of(st.integers(0, 5), st.floats(allow_nan=False)))
    def push(self, when):
        timer = self.heap.push(when)
        heapq.heappush(self.model, (float(when), self.sequence, timer))
        self.sequence += 1

    @precondition(lambda self: self.model)
    @rule()
    def pop(self):
        assert self.heap.first() == self.model[0][0]
        assert self.heap.pop() is heapq.heappop(self.model)[2]

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def cancel(self, data):
        entry = data.draw(st.sampled_from(self.model))
        entry[2].cancel()
        assert entry[2].cancelled()
        self.model.remove(entry)
        heapq.heapify(self.model)

    @rule()
    def clear(self):
        self.heap.clear()
        self.model = []

    @invariant()
    def same_size_and_ordered(self):
        assert len(self.heap) == len(self.model)
        assert self.heap.is_valid()


TestHeapModel = HeapModel.TestCase
TestHeapModel.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)


def test_equal_deadlines_keep_the_order_of_their_making():
    heap = Heap()
    timers = [heap.push(1.0) for _ in range(200)]
    assert [heap.pop() for _ in range(200)] == timers
    assert all(a is b for a, b in zip([heap.push(2.0)], [heap.pop()], strict=True))


def test_cancel_releases_what_the_callback_holds_at_once():
    class Held:
        pass

    heap, held = Heap(), Held()
    gone = weakref.ref(held)
    timers = [heap.push(i) for i in range(100)]
    timer = heap.push(1e9, held.__init__, (held,))
    del held
    gc.collect()
    assert gone() is not None
    timer.cancel()
    assert gone() is None
    assert len(heap) == 100
    assert timers[0].when() == 0.0


def test_cancel_twice_counts_once():
    heap = Heap()
    timer = heap.push(1.0)
    timer.cancel()
    timer.cancel()
    assert heap.cancelled == 1
    assert len(heap) == 0


def test_memory_shrinks_again_after_many_timers():
    heap = Heap()
    timers = [heap.push(i % 97) for i in range(10_000)]
    grown = heap.capacity
    for timer in timers:
        timer.cancel()
    assert heap.capacity < grown // 8


@pytest.mark.parametrize("count", [1, 4, 5, 21, 64, 65, 1000])
def test_pop_gives_them_in_order(count):
    heap = Heap()
    order = [(i * 7919) % count for i in range(count)]
    for when in order:
        heap.push(when)
    assert [heap.pop().when() for _ in range(count)] == sorted(order)


def test_handles_compare_by_deadline():
    heap = Heap()
    early, late = heap.push(1.0), heap.push(2.0)
    same = heap.push(1.0)
    assert early < late
    assert late > early
    assert early <= same
    assert early >= same
    assert early == same
    assert early != late
    assert hash(early) == hash(1.0)
    assert early.__lt__(1.0) is NotImplemented


@pytest.mark.parametrize("others", [1, 100])
def test_finalizers_may_push_while_it_grows(others):
    """Before Python 3.12 the garbage collector runs within an allocation."""

    class PushesAtTheEnd:
        def __init__(self):
            self.cycle = self

        def __del__(self):
            for i in range(others):
                heap.push(i)

    heap = Heap()
    for i in range(64):
        heap.push(i)
    timer = heap.made(64)
    # Memory of former lists is used again without a look at the garbage: there is none.
    kept = [[] for _ in range(200)]
    PushesAtTheEnd()
    threshold = gc.get_threshold()
    gc.set_threshold(1)
    try:
        heap.push_made(timer)
    finally:
        gc.set_threshold(*threshold)
    gc.collect()
    assert heap.is_valid()
    assert heap.capacity >= len(heap)
    found = [heap.pop().when() for _ in range(len(heap))]
    assert found == sorted([*range(65), *range(others)])
    assert kept
