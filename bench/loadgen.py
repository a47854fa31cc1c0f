"""Builds the C load generator on demand and puts together its command line."""

import hashlib
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

from bench.measure import Settings
from bench.processes import ROOT

SOURCE = Path(__file__).parent / "native" / "loadgen.c"
CACHE = ROOT / "build" / "bench"
FLAGS = ("-O2", "-Wall", "-Wextra")
TLS_FLAGS = ("-DLOADGEN_TLS",)
TLS_LIBRARIES = ("-lssl", "-lcrypto")


@cache
def executable(*, tls: bool = False) -> Path:
    """The compiled load generator; compiled anew when its source or the compiler flags change.

    Raises:
        RuntimeError: There is no C compiler, or it failed; with TLS, perhaps for want of the
            headers of OpenSSL (Debian's libssl-dev).
    """
    flags = FLAGS + TLS_FLAGS if tls else FLAGS
    libraries = TLS_LIBRARIES if tls else ()
    stamp = hashlib.sha256(SOURCE.read_bytes() + " ".join(flags).encode()).hexdigest()[:16]
    program = CACHE / f"loadgen-{stamp}"
    if program.exists():
        return program
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        raise RuntimeError("the load generator needs a C compiler (cc, or set CC)")
    CACHE.mkdir(parents=True, exist_ok=True)
    unfinished = CACHE / f"{program.name}.{os.getpid()}"
    done = subprocess.run(
        [compiler, *flags, "-o", unfinished, SOURCE, *libraries], capture_output=True, text=True
    )
    if done.returncode != 0:
        raise RuntimeError(f"{compiler} failed:\n{done.stderr}")
    unfinished.replace(program)
    return program


def command(
    target: str,
    settings: Settings,
    *,
    connections: int,
    size_bytes: int,
    depth: int = 1,
    tls: bool = False,
    churns: bool = False,
    udp: bool = False,
) -> list[str]:
    """The load generator's command line, without the length of the measured phase."""
    words = [executable(tls=tls), "--target", target, "--connections", connections]
    words += ["--size", size_bytes, "--depth", depth, "--warmup", settings.warmup_s]
    if settings.client_cpu is not None:
        words += ["--cpu", settings.client_cpu]
    if settings.congestion:
        words += ["--congestion", settings.congestion]
    if not settings.client_spins:
        words.append("--sleep")
    if tls:
        words.append("--tls")
    if churns:
        words.append("--churn")
    if udp:
        words.append("--udp")
    return [str(word) for word in words]
