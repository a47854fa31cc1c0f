# What the ready queue holds: objects with one virtual method, `run`.

from cpython.object cimport PyObject

cdef extern from "Python.h":
    object copy_context "PyContext_CopyCurrent"()
    int enter_context "PyContext_Enter"(object context) except -1
    int exit_context "PyContext_Exit"(object context) except -1
    int try_enter_context "PyContext_Enter"(object context) noexcept    # -1: an exception is set
    void PyErr_Clear()
    object PyObject_CallOneArg(object callable, object arg)
    object PyObject_CallNoArgs(object callable)
    PyObject *PyObject_Call(PyObject *callable, PyObject *args, PyObject *keywords)


cdef class Runnable:
    """Something that can stand in the ready queue."""
    cdef:
        readonly bint _cancelled
    cdef int run(self) except -1
    cdef int report(self, object exc) except -1    # `run` raised `exc`


cdef class Handle(Runnable):
    """A scheduled callback: asyncio.Handle."""
    cdef:
        # What to call; None once cancelled.
        readonly object _callback
        readonly tuple _args
        readonly object _context
        # Who scheduled it.
        readonly object _loop
        list _debug_notes       # debug mode: [where it was made, the callback's name if cancelled]
        object __weakref__
    cdef int _cancel(self) except -1
    cdef int note_source(self) except -1
    cdef str _describe(self)
    cdef list _repr_extra(self)


cdef class ThreadsafeHandle(Handle):
    """A callback posted from any thread; `_next` links the posted ones."""
    cdef:
        PyObject *_next


cdef Handle new_handle(object callback, tuple args, object loop, object context)


cdef inline object call_in(object context, object callable):
    """Call `callable()` inside `context`."""
    enter_context(context)
    try:
        return PyObject_CallNoArgs(callable)
    finally:
        exit_context(context)


cdef inline object call_in_with(object context, object callable, object arg):
    """Call `callable(arg)` inside `context`."""
    enter_context(context)
    try:
        return PyObject_CallOneArg(callable, arg)
    finally:
        exit_context(context)


cdef inline object call_inside(object context, object callable):
    """As `call_in`, also from inside `context`, which cannot be entered twice."""
    if try_enter_context(context) == 0:
        try:
            return PyObject_CallNoArgs(callable)
        finally:
            exit_context(context)
    PyErr_Clear()
    return PyObject_CallNoArgs(callable)
