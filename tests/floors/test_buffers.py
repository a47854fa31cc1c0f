"""The write queue against a plain bytes object."""
import sys

import pytest
from buffers_door import Queue, immutable
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule


class QueueModel(RuleBasedStateMachine):
    """Pushes and partial sends in any order: the same bytes, in order, counted in bytes."""

    def __init__(self):
        super().__init__()
        self.queue = Queue()
        self.model = b""

    @rule(data=st.binary(max_size=40), cut=st.integers(0, 10))
    def push(self, data, cut):
        cut = min(cut, len(data))
        self.queue.push(data, cut)
        self.model += data[cut:]

    @rule(data=st.data())
    def kernel_takes(self, data):
        offered = sum(len(part) for part in self.queue.vector(4))
        n = data.draw(st.integers(0, offered))
        self.queue.advance(n)
        self.model = self.model[n:]

    @rule()
    def clear(self):
        self.queue.clear()
        self.model = b""

    @invariant()
    def same_bytes(self):
        assert self.queue.size == len(self.model)
        assert b"".join(self.queue.vector(1000)) == self.model
        assert self.queue.copy(len(self.model)) == self.model
        assert self.model.startswith(b"".join(self.queue.vector(2)))
        assert self.model.startswith(self.queue.copy(7))


TestQueueModel = QueueModel.TestCase
TestQueueModel.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)


def test_bytes_are_held_until_sent_and_not_longer():
    queue, data = Queue(), b"x" * 100
    before = sys.getrefcount(data)
    queue.push(data)
    queue.push(data)
    assert sys.getrefcount(data) == before + 2
    queue.advance(150)
    assert sys.getrefcount(data) == before + 1
    del queue
    assert sys.getrefcount(data) == before


def test_nothing_is_queued_for_an_empty_push():
    queue = Queue()
    queue.push(b"")
    queue.push(b"abc", 3)
    assert (queue.size, queue.count) == (0, 0)


@pytest.mark.parametrize("count", [3, 4, 5, 8, 9, 100, 5000])
def test_many_pieces(count):
    queue = Queue()
    pieces = [b"%d," % i for i in range(count)]
    for piece in pieces:
        queue.push(piece)
    everything = b"".join(pieces)
    assert queue.count == count
    assert b"".join(queue.vector(count)) == everything
    queue.advance(len(everything) - 1)
    assert queue.copy(10) == b","


def test_a_mutable_buffer_is_copied_and_bytes_are_not():
    data = bytearray(b"abc")
    copy = immutable(data)
    data[:] = b"xyz"
    assert copy == b"abc"
    data.clear()        # not locked by an exported buffer
    same = b"bytes"
    assert immutable(same) is same


def test_a_memoryview_of_wide_items_is_counted_in_bytes():
    import array

    assert immutable(memoryview(array.array("I", [1, 2]))) == array.array("I", [1, 2]).tobytes()


def test_a_memoryview_with_gaps_is_refused():
    with pytest.raises(BufferError):
        immutable(memoryview(b"abcdef")[::2])
