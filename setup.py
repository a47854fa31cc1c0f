"""Builds the compiled rooms of eploop: one extension module per `.pyx` file.

Environment:
    EPLOOP_DEBUG=1      -O0 -g, invariant checks compiled in, Cython bounds and None checks on.
    EPLOOP_OPT_CFLAGS   Replaces the compiler flags of the chosen profile.
"""
import os
import shlex
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

DEBUG = os.environ.get("EPLOOP_DEBUG") == "1"
CFLAGS = shlex.split(os.environ.get("EPLOOP_OPT_CFLAGS", "-O0 -g" if DEBUG else "-O2"))
DIRECTIVES = {
    "language_level": 3,
    "embedsignature": False,
    "boundscheck": DEBUG,
    "wraparound": False,
    "initializedcheck": DEBUG,
    "nonecheck": DEBUG,
    "cdivision": True,
    "freethreading_compatible": True,
}


def extension(path):
    return Extension(
        ".".join(path.with_suffix("").parts),
        [str(path)],
        extra_compile_args=CFLAGS,
        define_macros=[("EPLOOP_DEBUG", str(int(DEBUG)))],
    )


setup(
    ext_modules=cythonize(
        [extension(path) for path in sorted(Path("eploop").rglob("*.pyx"))],
        nthreads=os.cpu_count() or 1,
        compiler_directives=DIRECTIVES,
        build_dir="build/cython",
    ),
)
