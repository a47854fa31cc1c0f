"""What the ready queue holds: runnables, and the handles that users keep."""

import asyncio
import sys
from asyncio import format_helpers

cimport cython
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_GET_SIZE

cdef extern from *:
    """
    #define eploop_tuple_items(t) (((PyTupleObject *)(t))->ob_item)
    """
    PyObject **tuple_items "eploop_tuple_items"(PyObject *t)
    void drop "Py_DECREF"(PyObject *o)
    void drop_if "Py_XDECREF"(PyObject *o)


cdef class Runnable:

    cdef int run(self) except -1:
        return 0

    cdef int report(self, object exc) except -1:
        raise exc


@cython.freelist(128)
cdef class Handle(Runnable):
    """A callback in the ready queue, as asyncio.Handle.

    Source: CPython 3.13 asyncio.events.Handle.
    """

    @property
    def __class__(self):
        return asyncio.Handle

    cdef int run(self) except -1:
        cdef:
            # The callback may cancel its own handle, which drops both.
            object callback = self._callback
            tuple args = self._args
            object context = self._context
            PyObject *result
        if self._cancelled:
            return 0
        enter_context(context)
        # SAFETY: `args` is a local reference, so its items outlive the call.
        result = PyObject_Vectorcall(
            <PyObject *>callback, tuple_items(<PyObject *>args), PyTuple_GET_SIZE(args), NULL)
        if exit_context(context) < 0:
            drop_if(result)
            return -1
        if result is NULL:
            return -1
        drop(result)
        return 0

    cdef int report(self, object exc) except -1:
        description = format_helpers._format_callback_source(self._callback, self._args)
        context = {
            "message": f"Exception in callback {description}",
            "exception": exc,
            "handle": self,
        }
        if self._debug_notes is not None:
            context["source_traceback"] = self._source_traceback
        self._loop.call_exception_handler(context)
        return 0

    def _run(self):
        try:
            self.run()
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as exc:
            self.report(exc)

    def cancel(self):
        self._cancel()

    cdef int _cancel(self) except -1:
        if self._cancelled:
            return 0
        if self._debug_notes is not None:
            self._debug_notes[1] = repr(self)
        self._cancelled = True
        self._callback = None
        self._args = None
        return 0

    def cancelled(self):
        return bool(self._cancelled)

    def get_context(self):
        return self._context

    cdef int note_source(self) except -1:
        """Debug mode: remember who scheduled this. Compiled callers have no frame of their own."""
        self._debug_notes = [format_helpers.extract_stack(sys._getframe(0)), None]
        return 0

    @property
    def _source_traceback(self):
        return None if self._debug_notes is None else self._debug_notes[0]

    @property
    def _repr(self):
        return None if self._debug_notes is None else self._debug_notes[1]

    def _repr_info(self):
        return asyncio.Handle._repr_info(self)

    def __repr__(self):
        return asyncio.Handle.__repr__(self)


@cython.final
cdef class ThreadsafeHandle(Handle):
    pass
