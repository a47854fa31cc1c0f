# A descriptor that the user watches: add_reader, add_writer, and the waits of sock_*.

from libc.stdint cimport uint32_t

from eploop.handles cimport Handle, Runnable
from eploop.poller cimport Poller, Watcher
from eploop.ready cimport ReadyQueue


cdef class Descriptor(Watcher):
    """Handlers are level-triggered in every mode: they need not drain anything.

    Waits are edge-triggered, as each follows a call that would have blocked, and stay registered
    from one wait to the next for as long as it is the same socket object that waits: a number that
    was closed and used again belongs to another one.
    """
    cdef:
        Poller _poller
        ReadyQueue _ready
        # add_reader, add_writer: called again and again; None if there is none.
        Handle reader
        Handle writer
        # sock_*: woken once, in the order in which they came; None if there are none.
        list _read_waits
        list _write_waits
        object _owner           # weak reference to the socket that waited last, or None
        object _file            # what was given to add_reader or add_writer, if no number; or None
        bint _is_gone           # it was closed before it was removed
    # The handlers for `file`, a descriptor or an object that has one; true if there was one.
    cdef bint set_reader(self, Handle handle, object file) except -1
    cdef bint set_writer(self, Handle handle, object file) except -1
    cdef int await_readable(self, Runnable waiter, object sock) except -1
    cdef int await_writable(self, Runnable waiter, object sock) except -1
    cdef int forget(self, Runnable waiter) except -1       # it waits no more
    cdef int _note_file(self, Handle handle, object file) except -1
    cdef int _wake(self, list waits) except -1
    cdef int _end_surplus(self, bint woken) except -1
    cdef int _update(self, bint again) except -1
    cdef int _begin(self, Runnable waiter, object sock) except -1
    cdef bint _is_owner(self, object sock) except -1
    cdef bint _is_ownerless(self) except -1


cdef Descriptor descriptor_at(Poller poller, ReadyQueue ready, int fd)
cdef Descriptor descriptor_of_closed(Poller poller, object file)
