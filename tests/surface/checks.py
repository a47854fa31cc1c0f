"""What rows say of values, exceptions and time."""
import contextlib
import os
import time


def equal(found, wanted, what=""):
    """Fail, telling both, unless they are equal."""
    assert found == wanted, f"{what}{': ' if what else ''}{found!r:.80}, not {wanted!r:.80}"


def kind_of(found, wanted):
    """Fail unless `found` is an instance of `wanted`."""
    assert isinstance(found, wanted), f"{found!r:.80} is no {wanted.__name__}"


@contextlib.contextmanager
def raises(*types):
    """The block must raise one of these exceptions; gives a list that will hold it."""
    caught = []
    try:
        yield caught
    except types as exc:
        if isinstance(exc, NotImplementedError) and NotImplementedError not in types:
            raise       # a RuntimeError by its class only
        caught.append(exc)
        return
    raise AssertionError(f"no {' or '.join(kind.__name__ for kind in types)}")


async def refused(awaitable, *types):
    """Awaiting must raise one of these exceptions, which is returned."""
    with raises(*types) as caught:
        await awaitable
    return caught[0]


@contextlib.contextmanager
def within(seconds, what="it"):
    """The block must be done so soon."""
    began = time.monotonic()
    yield
    took = time.monotonic() - began
    assert took < seconds, f"{what} took {took:.3f} s"


def descriptors():
    """How many descriptors this process has open."""
    return len(os.listdir("/proc/self/fd"))
