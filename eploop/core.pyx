"""LoopCore: the hot half of the event loop.

One turn: decide the wait, poll, expire timers, run what is ready, flush what was coalesced.

The methods that asyncio documents are as in asyncio.BaseEventLoop of CPython 3.13; differences are
named in their docstrings.
"""

import asyncio
import inspect
import sys
from types import BuiltinMethodType

from cpython.exc cimport PyErr_CheckSignals
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_GET_SIZE, PyTuple_New, PyTuple_SET_ITEM
from libc.limits cimport INT_MAX
from libc.math cimport isnan
from libc.stdint cimport int64_t, uint64_t

from eploop.buffers cimport SharedBuffers
from eploop.fastcall cimport PyMethodDef, replace_method
from eploop.handles cimport (
    Handle, Runnable, ThreadsafeHandle, copy_context, new_handle,
)
from eploop.poller cimport Poller, Watcher
from eploop.readers cimport Descriptor, descriptor_at, descriptor_of_closed
from eploop.ready cimport ReadyQueue
from eploop.syscalls cimport clock
from eploop.timers cimport TimerHandle, TimerHeap, new_timer

cdef extern from "Python.h":
    unsigned long thread_id "PyThread_get_thread_ident"() noexcept nogil

cdef extern from *:
    int log2_of "63 - __builtin_clzll"(unsigned long long value) noexcept nogil

cdef enum:
    # While callbacks are ready the kernel is asked this often, whichever comes first: a poll
    # costs a fifth of a task switch, and no descriptor waits longer than one turn more than this.
    POLL_CALLBACKS = 64
    POLL_GAP_NS = 50000
    # Waits are rounded up to this grid, so that near deadlines share one wake-up.
    GRID_NS = 50000
    # Twice sys.getswitchinterval(): a thread that waits that long for the GIL asks for it, and is
    # handed it; one that is woken before it could ask may come too late again and again.
    SWITCH_NS = 10000000

cdef int64_t NO_LIMIT_NS = -1
cdef int64_t LONGEST_WAIT_NS = 24 * 3600 * <int64_t>1000000000
cdef double NS = 1e-9


cdef class LoopCore:

    def __cinit__(self, str mode="edge", *, int64_t busy_poll_us=0, bint precise_timers=False):
        self.poller = Poller(mode)
        self.ready = ReadyQueue()
        self.timers = TimerHeap()
        self.shared = SharedBuffers()
        self._unflushed = []
        self._spin_ns = busy_poll_us * 1000
        self._grid_ns = 1 if precise_timers else GRID_NS
        self._has_own_clock = type(self).time is not LoopCore.time

    # ---- scheduling

    def call_soon(self, callback, *args, context=None):
        """Run `callback(*args)` in the next turn, in the order of the calls."""
        return self._soon(callback, args, context)

    cdef Handle _soon(self, object callback, tuple args, object context):
        cdef Handle handle
        if self._is_closed:
            self._check_closed()
        if context is None:
            context = copy_context()
        handle = new_handle(callback, args, self, context)
        if self._debugging:
            self._check_thread()
            self._check_callback(callback, "call_soon")
            handle.note_source()
        self.ready.push(handle)
        return handle

    def call_soon_threadsafe(self, callback, *args, context=None):
        """As `call_soon`, from any thread. Wakes the loop if it sleeps."""
        cdef ThreadsafeHandle handle
        if self._is_closed:
            self._check_closed()
        handle = ThreadsafeHandle.__new__(ThreadsafeHandle)
        handle._callback = callback
        handle._args = args
        handle._loop = self
        handle._context = copy_context() if context is None else context
        if self._debugging:
            self._check_callback(callback, "call_soon_threadsafe")
            handle.note_source()
        if self._thread == thread_id():
            self.ready.push(handle)
            return handle
        if not self.ready.post(handle):
            self._check_closed()
        self.poller.wake()
        return handle

    def call_later(self, delay, callback, *args, context=None):
        """Run `callback(*args)` after `delay` seconds, never earlier.

        Raises:
            TypeError: `delay` is no number.
            ValueError: `delay` is not a number (NaN).
        """
        if delay is None:
            raise TypeError("delay must not be None")
        return self._call_at(self._now() + <double>delay, callback, args, context,
                             "call_later")

    def call_at(self, when, callback, *args, context=None):
        """Run `callback(*args)` when `loop.time()` has reached `when`, never earlier.

        Equal deadlines run in the order of the calls.

        Raises:
            TypeError: `when` is no number.
            ValueError: `when` is not a number (NaN).
        """
        if when is None:
            raise TypeError("when cannot be None")
        return self._call_at(<double>when, callback, args, context, "call_at")

    cdef TimerHandle _call_at(self, double deadline, object callback, tuple args,
                              object context, str method):
        cdef TimerHandle timer
        if self._is_closed:
            self._check_closed()
        if isnan(deadline):
            raise ValueError(f"{method}() needs a number of seconds, not NaN")
        if context is None:
            context = copy_context()
        timer = new_timer(deadline, callback, args, self, context)
        if self._debugging:
            self._check_thread()
            self._check_callback(callback, method)
            timer.note_source()
        self.timers.push(timer)
        return timer

    cdef Handle schedule(self, object callback, tuple args, object context):
        cdef Handle handle = new_handle(callback, args, self, context)
        self.ready.push(handle)
        return handle

    cdef int defer(self, Runnable job) except -1:
        return self.ready.push(job)

    cdef int flush_later(self, Watcher watcher) except -1:
        self._unflushed.append(watcher)
        return 0

    cdef uint64_t turn(self) noexcept:
        return self.counters.turns

    cdef bint is_turning(self) noexcept:
        return self._thread != 0

    cdef double _now(self) except? -1:
        return self.time() if self._has_own_clock else clock.monotonic_ns() * NS

    def time(self):
        """Seconds of CLOCK_MONOTONIC, read at each call; the same clock as time.monotonic().

        Timers obey a subclass's own.
        """
        return clock.monotonic_ns() * NS

    # ---- one turn

    cdef int _turn(self) except -1:
        cdef int64_t now_ns = clock.monotonic_ns()
        self._note_turn_time(now_ns)
        if self.ready.has_posted():
            self.ready.collect()
        if self.ready.size == 0 and not self._stopping and not self._unflushed:
            self._block(now_ns)
            PyErr_CheckSignals()
            now_ns = clock.monotonic_ns()
            self._polled_ns = self._let_in_ns = now_ns
            self._callbacks_since_poll = 0
        elif (self._callbacks_since_poll >= POLL_CALLBACKS or self._stopping
                or now_ns - self._polled_ns >= POLL_GAP_NS):
            self.poller.poll()
            self._polled_ns = now_ns
            self._callbacks_since_poll = 0
            # A loop that runs only compiled callbacks never reaches the interpreter's own checks,
            # for signals and for threads that wait for the GIL.
            PyErr_CheckSignals()
            if now_ns - self._let_in_ns >= SWITCH_NS:
                self._let_in_ns = now_ns
                with nogil:
                    pass
        self._turn_began_ns = now_ns
        self.counters.turns += 1
        if self.timers.size:
            self._expire(self._now() if self._has_own_clock else now_ns * NS)
        self._run_ready()
        if self._unflushed:
            self._flush()
        return 0

    cdef int _block(self, int64_t now_ns) except -1:
        """Wait for events, as long as the first timer allows."""
        cdef int64_t timeout_ns = NO_LIMIT_NS
        if self.timers.size:
            if self._has_own_clock:
                now_ns = <int64_t>(self._now() * 1e9)
            timeout_ns = self._until_ns(self.timers.first(), now_ns)
            if timeout_ns == 0:
                return self.poller.poll()
        # Whoever posts after this line wakes us; whoever posted before it is seen by the next.
        self.poller.lie_down()
        if self.ready.has_posted():
            self.poller.get_up()
            self.ready.collect()
            return self.poller.poll()
        self.poller.wait(timeout_ns, self._spin_ns)
        if self.ready.has_posted():
            self.ready.collect()
        return 0

    cdef int64_t _until_ns(self, double deadline, int64_t now_ns) noexcept:
        """From now to the first point of the grid at or after `deadline`; 0 if it is over."""
        cdef int64_t deadline_ns
        if deadline <= now_ns * NS:
            return 0
        if deadline - now_ns * NS > LONGEST_WAIT_NS * NS:
            return LONGEST_WAIT_NS
        # One more nanosecond covers what the conversion from seconds cut off.
        deadline_ns = <int64_t>(deadline * 1e9) + 1
        deadline_ns += self._grid_ns - 1
        deadline_ns -= deadline_ns % self._grid_ns
        return max(deadline_ns - now_ns, 1)

    cdef int _expire(self, double now) except -1:
        while self.timers.size and self.timers.first() <= now:
            self.ready.push(self.timers.pop())
            self.counters.timers_fired += 1
        return 0

    cdef int _run_ready(self) except -1:
        cdef:
            Py_ssize_t left = self.ready.size    # what callbacks add waits for the next turn
            Runnable job = None
        self._callbacks_since_poll += left
        self.counters.callbacks += left
        if self._debugging:
            return self._run_ready_debug(left)
        while left > 0:
            try:
                while left > 0:
                    left -= 1
                    job = self.ready.popleft()
                    job.run()
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as exc:
                job.report(exc)
        return 0

    cdef int _run_ready_debug(self, Py_ssize_t left) except -1:
        """As `_run_ready`; also names the slow ones."""
        cdef int64_t began_ns
        cdef Runnable job
        try:
            while left > 0:
                left -= 1
                job = self.ready.popleft()
                self._current = job if isinstance(job, Handle) else None
                began_ns = clock.monotonic_ns()
                try:
                    job.run()
                except (KeyboardInterrupt, SystemExit):
                    raise
                except BaseException as exc:
                    job.report(exc)
                self._note_slow(job, (clock.monotonic_ns() - began_ns) * NS)
        finally:
            self._current = None
        return 0

    cdef int _note_slow(self, object job, double seconds) except -1:
        if seconds >= self.slow_callback_duration:
            asyncio.log.logger.warning(
                "Executing %s took %.3f seconds", asyncio.base_events._format_handle(job)
                if isinstance(job, Handle) else repr(job), seconds)
        return 0

    cdef int _flush(self) except -1:
        cdef:
            list unflushed = self._unflushed
            Py_ssize_t done = 0
            Watcher watcher
        self._unflushed = []
        try:
            for watcher in unflushed:
                done += 1
                watcher.flush()
        except BaseException:
            # KeyboardInterrupt, from a protocol that was told to go on writing.
            self._unflushed = unflushed[done:] + self._unflushed
            raise
        return 0

    cdef void _note_turn_time(self, int64_t now_ns) noexcept:
        cdef int bucket
        if self._turn_began_ns:
            bucket = log2_of(<unsigned long long>(now_ns - self._turn_began_ns) | 1)
            self.counters.turn_time[min(bucket, TURN_TIME_BUCKETS - 1)] += 1

    # ---- running, stopping, closing

    def run_forever(self):
        """Run until `stop()` is called."""
        self._check_closed()
        self._check_running()
        old_hooks = sys.get_asyncgen_hooks()
        self._set_coroutine_origin_tracking(bool(self._debugging))
        self._thread = thread_id()
        self._turn_began_ns = 0
        try:
            sys.set_asyncgen_hooks(firstiter=self._asyncgen_firstiter_hook,
                                   finalizer=self._asyncgen_finalizer_hook)
            asyncio._set_running_loop(self)
            if self._run_hooks is not None:
                self._run_hooks.enter()
            while True:
                self._turn()
                if self._stopping:
                    break
        finally:
            self._stopping = False
            self._thread = 0
            if self._run_hooks is not None:
                self._run_hooks.leave()
            asyncio._set_running_loop(None)
            self._set_coroutine_origin_tracking(False)
            sys.set_asyncgen_hooks(*old_hooks)

    def stop(self):
        """End `run_forever` when this turn's callbacks have run."""
        self._stopping = True

    def is_running(self):
        return self._thread != 0

    def is_closed(self):
        return bool(self._is_closed)

    def _check_closed(self):
        if self._is_closed:
            raise RuntimeError("Event loop is closed")

    def _check_running(self):
        if self._thread != 0:
            raise RuntimeError("This event loop is already running")
        if asyncio._get_running_loop() is not None:
            raise RuntimeError("Cannot run the event loop while another loop is running")

    def _check_thread(self):
        if self._thread != 0 and self._thread != thread_id():
            raise RuntimeError(
                "Non-thread-safe operation invoked on an event loop other than the current one")

    def _check_callback(self, callback, method):
        if isinstance(callback, BuiltinMethodType):
            return      # set_result and the like: no need to look closely
        if inspect.iscoroutine(callback) or inspect.iscoroutinefunction(callback):
            raise TypeError(f"coroutines cannot be used with {method}()")
        if not callable(callback):
            raise TypeError(
                f"a callable object was expected by {method}(), got {callback!r}")

    def _set_run_hooks(self, hooks):
        """`hooks.enter()` and `hooks.leave()` are called around each run."""
        self._run_hooks = hooks

    def _counters(self):
        return {
            "turns": self.counters.turns,
            "polls": self.poller.polls,
            "events": self.poller.events,
            "callbacks": self.counters.callbacks,
            "wakeups_written": self.poller.wakeups_written,
            "wakeups_avoided": self.poller.wakeups_avoided,
            "timers_scheduled": self.timers.scheduled(),
            "timers_fired": self.counters.timers_fired,
            "timers_cancelled": self.timers.cancelled,
            "timers_pending": self.timers.size,
            "epoll_ctl_calls": self.poller.ctl_calls,
            "would_blocks": self.counters.would_blocks,
            "bytes_received": self.counters.bytes_received,
            "bytes_sent": self.counters.bytes_sent,
            "open_transports": self.counters.transports,
            "ready_depth": self.ready.size,
            "turn_time_histogram": tuple(
                [self.counters.turn_time[i] for i in range(TURN_TIME_BUCKETS)]),
        }

    @property
    def mode(self):
        """"edge", "oneshot" or "level"."""
        return ("edge", "oneshot", "level")[self.poller.mode]

    def _close_core(self):
        """Drop all that is queued and watched. The roof calls it, once, from `close`."""
        self._is_closed = True
        self.ready.close()
        self.timers.clear()
        self._unflushed = []
        self.poller.close()

    def _write_to_self(self):
        self.poller.wake()

    # What BaseEventLoop keeps under these names lies here, where compiled code reads it.

    @property
    def _closed(self):
        return bool(self._is_closed)

    @_closed.setter
    def _closed(self, value):
        self._is_closed = value

    @property
    def _thread_id(self):
        return self._thread or None

    @_thread_id.setter
    def _thread_id(self, value):
        self._thread = value or 0

    @property
    def _current_handle(self):
        return self._current

    @_current_handle.setter
    def _current_handle(self, value):
        self._current = value

    @property
    def _debug(self):
        return bool(self._debugging)

    def get_debug(self):
        return bool(self._debugging)

    def set_debug(self, enabled):
        """Switch asyncio's debug mode on or off."""
        self._debugging = bool(enabled)
        if self._thread != 0:
            self.call_soon_threadsafe(self._set_coroutine_origin_tracking, bool(enabled))

    # ---- readers and writers

    def add_reader(self, fd, callback, *args):
        """Call `callback(*args)` while `fd` is readable (level-triggered in every mode)."""
        self._descriptor(fd).set_reader(self._watching(callback, args), fd)

    def add_writer(self, fd, callback, *args):
        """Call `callback(*args)` while `fd` is writable (level-triggered in every mode)."""
        self._descriptor(fd).set_writer(self._watching(callback, args), fd)

    def remove_reader(self, fd):
        """End `add_reader`, also of a file object that was closed; True if there was one."""
        return not self._is_closed and self._watched(fd).set_reader(None, fd)

    def remove_writer(self, fd):
        """End `add_writer`, also of a file object that was closed; True if there was one."""
        return not self._is_closed and self._watched(fd).set_writer(None, fd)

    cdef Descriptor _descriptor(self, object fd):
        self._check_closed()
        return descriptor_at(self.poller, self.ready, fileno_of(fd))

    cdef Descriptor _watched(self, object fd):
        cdef Descriptor descriptor
        try:
            return self._descriptor(fd)
        except ValueError:
            descriptor = descriptor_of_closed(self.poller, fd)
            if descriptor is None:
                raise
            return descriptor

    cdef Handle _watching(self, object callback, tuple args):
        cdef Handle handle = new_handle(callback, args, self, copy_context())
        if self._debugging:
            self._check_callback(callback, "add_reader")
            handle.note_source()
        return handle


cdef int fileno_of(object fd) except -1:
    """The descriptor of `fd`, a number or an object with fileno().

    Raises:
        ValueError: It is neither, or negative.
    """
    cdef object number = fd
    if not isinstance(fd, int):
        try:
            number = int(fd.fileno())
        except (AttributeError, TypeError, ValueError):
            raise ValueError(f"Invalid file object: {fd!r}") from None
    if not 0 <= number <= INT_MAX:
        raise ValueError(f"Invalid file descriptor: {number}")
    return number


# Tasks call call_soon(step, context=context) for each of their steps, and the parsing of a keyword
# that Cython generates costs as much as all that is done then.

cdef extern from *:
    """
    static PyMethodDef eploop_call_soon = EPLOOP_FAST_METHOD("call_soon",
        "call_soon($self, callback, /, *args, context=None)\\n--\\n\\n"
        "Run `callback(*args)` in the next turn, in the order of the calls.");
    """
    PyMethodDef call_soon_method "eploop_call_soon"

cdef object general_call_soon = LoopCore.__dict__["call_soon"]
cdef PyObject *context_alone = NULL
cdef object context_alone_owner = None


cdef object fast_call_soon(PyObject *self, PyObject **args, Py_ssize_t count, PyObject *names):
    cdef:
        object context = None
        tuple rest = ()
    if names is not NULL and PyTuple_GET_SIZE(<object>names) > 0:
        if names is not context_alone and not is_context_alone(<tuple>names):
            return call_generally(general_call_soon, self, args, count, <tuple>names)
        context = <object>args[count]
    if count == 0:
        return general_call_soon(<object>self)
    if count > 1:
        rest = as_tuple(args + 1, count - 1)
    # SAFETY: a method of LoopCore is only called with one.
    return (<LoopCore>self)._soon(<object>args[0], rest, context)


cdef bint is_context_alone(tuple names) except -1:
    """True for ("context",), and then remember it: each caller passes its own, again and again."""
    global context_alone, context_alone_owner
    if names != ("context",):
        return False
    context_alone_owner = names
    context_alone = <PyObject *>names
    return True


cdef tuple as_tuple(PyObject **items, Py_ssize_t count):
    cdef tuple result = PyTuple_New(count)
    cdef Py_ssize_t i
    for i in range(count):
        Py_INCREF(<object>items[i])
        PyTuple_SET_ITEM(result, i, <object>items[i])
    return result


cdef object call_generally(object method, PyObject *self, PyObject **args, Py_ssize_t count,
                           tuple names):
    """The unusual calls, the mistaken ones among them."""
    named = as_tuple(args + count, 0 if names is None else len(names))
    return method(<object>self, *as_tuple(args, count), **dict(zip(names or (), named)))


replace_method(LoopCore, &call_soon_method, fast_call_soon)
