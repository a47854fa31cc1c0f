# Sequentially consistent atomics (GCC and Clang builtins).

cdef extern from *:
    int exchange_int "__atomic_exchange_n"(int *where, int value, int order) noexcept nogil
    int load_int "__atomic_load_n"(int *where, int order) noexcept nogil
    void store_int "__atomic_store_n"(int *where, int value, int order) noexcept nogil
    void *exchange_pointer "__atomic_exchange_n"(
        void **where, void *value, int order) noexcept nogil
    void *load_pointer "__atomic_load_n"(void **where, int order) noexcept nogil
    bint replace_pointer "__atomic_compare_exchange_n"(
        void **where, void **expected, void *value, bint weak, int order, int order_failed
    ) noexcept nogil
    int SEQ_CST "__ATOMIC_SEQ_CST"
