# Invariant checks that cost nothing in a release build.

cdef extern from *:
    """
    #ifndef EPLOOP_DEBUG
    #define EPLOOP_DEBUG 0
    #endif
    #include <stdio.h>
    #include <stdlib.h>
    #define eploop_check(condition, text)                                          \\
        do {                                                                       \\
            if (EPLOOP_DEBUG && !(condition)) {                                    \\
                fprintf(stderr, "eploop: %s (%s:%d)\\n", text, __FILE__, __LINE__); \\
                abort();                                                           \\
            }                                                                      \\
        } while (0)
    """
    void check "eploop_check"(bint condition, const char *text) noexcept nogil
