"""What the ready queue holds: runnables, and the handles that users keep."""

import asyncio
import inspect
import sys
import traceback
from asyncio import format_helpers
from asyncio.constants import DEBUG_STACK_DEPTH

cimport cython
from cpython.object cimport PyObject

from eploop.recycle cimport recycle, spare_count, take_spare

cdef extern from *:
    """
    /* Assignment would first drop what is in the fields, and a spare has nothing there. */
    #define eploop_fill(handle, callback, args, loop, context) do { \
        (handle)->__pyx_base._cancelled = 0; \
        (handle)->_callback = Py_NewRef(callback); \
        (handle)->_args = Py_NewRef(args); \
        (handle)->_loop = Py_NewRef(loop); \
        (handle)->_context = Py_NewRef(context); \
        (handle)->_debug_notes = Py_NewRef(Py_None); \
    } while (0)
    """
    void fill "eploop_fill"(Handle handle, object callback, tuple args, object loop,
                            object context)
    void track "PyObject_GC_Track"(object o)
    void drop "Py_DECREF"(PyObject *o)
    void drop_if "Py_XDECREF"(PyObject *o)


# 3.13 and newer: without it the arguments, which may be secrets, are left out.
cdef bint FORMAT_TAKES_DEBUG = (
    "debug" in inspect.signature(format_helpers._format_callback_source).parameters)


cdef class Runnable:

    cdef int run(self) except -1:
        return 0

    cdef int report(self, object exc) except -1:
        raise exc


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
        result = PyObject_Call(<PyObject *>callback, <PyObject *>args, NULL)
        if exit_context(context) < 0:
            drop_if(result)
            return -1
        if result is NULL:
            return -1
        drop(result)
        return 0

    cdef int report(self, object exc) except -1:
        context = {
            "message": f"Exception in callback {self._describe()}",
            "exception": exc,
            "handle": self,
        }
        if self._debug_notes is not None:
            context["source_traceback"] = self._source_traceback
        self._loop.call_exception_handler(context)
        return 0

    cdef str _describe(self):
        """The callback as asyncio names it: function, arguments, place."""
        if FORMAT_TAKES_DEBUG:
            return format_helpers._format_callback_source(
                self._callback, self._args, debug=self._loop.get_debug())
        return format_helpers._format_callback_source(self._callback, self._args)

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
        self._cancelled = True
        if self._debug_notes is not None:
            self._debug_notes[1] = self._describe()
        self._callback = None
        self._args = None
        return 0

    def cancelled(self):
        return bool(self._cancelled)

    def get_context(self):
        return self._context

    cdef int note_source(self) except -1:
        """Debug mode: remember who scheduled this. Compiled callers have no frame of their own.

        Only code objects and line numbers; the readable form is made when someone asks for it.
        """
        cdef list places = []
        frame = sys._getframe(0)
        while frame is not None and len(places) < DEBUG_STACK_DEPTH:
            places.append((frame.f_code, frame.f_lineno))
            frame = frame.f_back
        self._debug_notes = [places, None]
        return 0

    @property
    def _source_traceback(self):
        if self._debug_notes is None:
            return None
        places = self._debug_notes[0]
        if type(places) is list:
            places.reverse()
            self._debug_notes[0] = places = traceback.StackSummary(
                traceback.FrameSummary(code.co_filename, line, code.co_name, lookup_line=False)
                for code, line in places)
        return places

    def _repr_info(self):
        info = [type(self).__name__]
        if self._cancelled:
            info.append("cancelled")
        info += self._repr_extra()
        if self._callback is not None:
            info.append(self._describe())
        elif self._debug_notes is not None:
            info.append(self._debug_notes[1])
        if self._debug_notes is not None and self._source_traceback:
            *_, place = self._source_traceback
            info.append(f"created at {place.filename}:{place.lineno}")
        return info

    cdef list _repr_extra(self):
        return []

    def __repr__(self):
        return f"<{' '.join(self._repr_info())}>"


recycle(Handle)


cdef Handle new_handle(object callback, tuple args, object loop, object context):
    cdef Handle handle
    if spare_count > 0:
        handle = <Handle>take_spare()
        fill(handle, callback, args, loop, context)
        track(handle)
        return handle
    handle = Handle.__new__(Handle)
    handle._callback = callback
    handle._args = args
    handle._loop = loop
    handle._context = context
    return handle


@cython.final
cdef class ThreadsafeHandle(Handle):
    pass
