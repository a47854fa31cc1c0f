"""What a loop can be asked for: its poll mode, its options, how it does TLS."""

import os

MODES = ("edge", "oneshot", "level")
DEFAULT_MODE = "edge"
TLS_PATHS = ("direct", "memorybio")


def resolve_mode(mode):
    """The poll mode to use.

    Args:
        mode: One of `MODES`, or None: then the environment variable EPLOOP_MODE decides, and
            without it the mode is "edge".

    Returns:
        One of `MODES`.

    Raises:
        ValueError: The mode, given or from the environment, is none of the three.
    """
    origin = "mode"
    if mode is None:
        mode = os.environ.get("EPLOOP_MODE") or DEFAULT_MODE
        origin = "environment variable EPLOOP_MODE"
    if mode not in MODES:
        raise ValueError(f"{origin} must be 'edge', 'oneshot' or 'level', not {mode!r}")
    return mode


def check_busy_poll(microseconds):
    """`busy_poll_us` as a whole number of microseconds, 0 to 1 000 000.

    Raises:
        ValueError: It is out of range.
        TypeError: It is no integer.
    """
    if not isinstance(microseconds, int):
        raise TypeError(f"busy_poll_us must be an int, not {type(microseconds).__name__}")
    if not 0 <= microseconds <= 1_000_000:
        raise ValueError(f"busy_poll_us must be between 0 and 1000000, not {microseconds}")
    return microseconds


def resolve_tls_path():
    """How TLS reaches OpenSSL, from the environment variable EPLOOP_TLS.

    Returns:
        "direct": by its own functions where the process allows it; "memorybio": through Python's
        ssl module.

    Raises:
        ValueError: The variable holds something else.
    """
    path = os.environ.get("EPLOOP_TLS") or TLS_PATHS[0]
    if path not in TLS_PATHS:
        raise ValueError(
            f"environment variable EPLOOP_TLS must be 'direct' or 'memorybio', not {path!r}")
    return path
