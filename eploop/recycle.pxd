# Spare memory for objects that are made and dropped all the time.

cdef extern from *:
    """
    /* The memory of the last few objects of one type per module is kept for the next ones. A spare
       block is as tp_dealloc left it: untracked, its object fields NULL, its method table in place.
       Not under free threading, where each thread would need spares of its own. */
    #define EPLOOP_SPARES 256
    static PyTypeObject *eploop_recycled;
    static int eploop_spare_count;
    static PyObject *eploop_spares[EPLOOP_SPARES];

    static void eploop_free(void *object) {
        if (Py_TYPE((PyObject *)object) == eploop_recycled && eploop_spare_count < EPLOOP_SPARES)
            eploop_spares[eploop_spare_count++] = (PyObject *)object;
        else
            PyObject_GC_Del(object);
    }

    static inline PyObject *eploop_take_spare(void) {
        PyObject *object = eploop_spares[--eploop_spare_count];
        return PyObject_Init(object, eploop_recycled);
    }

    static inline void eploop_recycle(PyObject *type) {
    #ifndef Py_GIL_DISABLED
        eploop_recycled = (PyTypeObject *)type;
        eploop_recycled->tp_free = eploop_free;
    #else
        (void)type; (void)eploop_free;
    #endif
    }
    """
    void recycle "eploop_recycle"(object type)
    int spare_count "eploop_spare_count"
    object take_spare "eploop_take_spare"()     # only if there is one; fill it, then track it
