"""What a loop has counted: the structure that `Loop.statistics()` returns."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Statistics:
    """A snapshot of one loop's counters, all since the loop was made unless said otherwise.

    Attributes:
        turns: Turns of the loop.
        polls: Times the kernel was asked for events, blocking or not.
        events: Events it reported.
        callbacks: Ready-queue entries run (handles, and transports with something to do).
        wakeups_written: Posts from other threads that had to write the eventfd.
        wakeups_avoided: Posts for which the loop was awake already.
        timers_scheduled: Timers made by call_later and call_at.
        timers_fired: Timers that reached their deadline.
        timers_cancelled: Timers cancelled before it.
        timers_pending: Timers waiting now.
        epoll_ctl_calls: Changes to the epoll set.
        would_blocks: Reads and writes that the kernel refused with EAGAIN.
        bytes_received: By stream transports.
        bytes_sent: By stream transports.
        open_transports: Transports open now.
        ready_depth: Entries in the ready queue now.
        turn_time_histogram: Entry i counts the turns that took 2**i to 2**(i+1) - 1 nanoseconds,
            time blocked in the kernel not counted; the last entry takes all longer ones.
    """

    turns: int
    polls: int
    events: int
    callbacks: int
    wakeups_written: int
    wakeups_avoided: int
    timers_scheduled: int
    timers_fired: int
    timers_cancelled: int
    timers_pending: int
    epoll_ctl_calls: int
    would_blocks: int
    bytes_received: int
    bytes_sent: int
    open_transports: int
    ready_depth: int
    turn_time_histogram: tuple[int, ...]
