# Methods called as the interpreter calls its own built-in ones: PEP 590, METH_FASTCALL.

from cpython.object cimport PyObject

# Arguments without self: `count` positional ones, then one for each of `names`, a tuple or NULL.
ctypedef object (*FastMethod)(PyObject *self, PyObject **args, Py_ssize_t count, PyObject *names)

cdef extern from *:
    """
    #define EPLOOP_FAST_METHOD(name, doc) \\
        {name, NULL, METH_FASTCALL | METH_KEYWORDS, PyDoc_STR(doc)}

    /* Before the type is used, or subclassed: its methods may be cached from then on. */
    static inline int eploop_replace_method(PyObject *type, PyMethodDef *method, void *function) {
        method->ml_meth = (PyCFunction)(void (*)(void))function;
        PyObject *descriptor = PyDescr_NewMethod((PyTypeObject *)type, method);
        if (descriptor == NULL)
            return -1;
        int rc = PyDict_SetItemString(((PyTypeObject *)type)->tp_dict, method->ml_name, descriptor);
        Py_DECREF(descriptor);
        PyType_Modified((PyTypeObject *)type);
        return rc;
    }
    """
    ctypedef struct PyMethodDef:
        pass
    int replace_method "eploop_replace_method"(
        object type, PyMethodDef *method, FastMethod function) except -1
