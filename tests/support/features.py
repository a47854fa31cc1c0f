"""Parts of asyncio's interface that eploop does not have yet.

A test that needs one says so with `@needs(...)`, and a module of Python's own suite by the
table in `cpython/modules.toml`.  Such a test runs on asyncio alone until the name leaves PENDING:
that line is the only thing to change when the part is finished.
"""
import pytest

FEATURES = frozenset({"sock_ops", "datagrams", "pipes", "subprocess", "sendfile", "tls"})
PENDING = frozenset()


def needs(*features):
    """Mark a test that uses parts of the loop which may still be missing."""
    unknown = set(features) - FEATURES
    if unknown:
        raise ValueError(f"unknown features {sorted(unknown)}; known: {sorted(FEATURES)}")
    return pytest.mark.needs(*features)


def missing(features):
    """Which of `features` eploop does not have yet."""
    return PENDING.intersection(features)
