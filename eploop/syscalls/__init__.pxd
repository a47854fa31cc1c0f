# Floor 0: inline wrappers of system calls. Each returns a result >= 0, or -errno; none raises,
# none allocates a Python object, none needs the GIL.
