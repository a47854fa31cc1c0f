"""Compiles the test doors: small modules that show private compiled classes to the tests.

They are built against the eploop that is imported, into a folder per Python, and only when a door
or a `.pxd` of eploop is newer than what was built.
"""
import os
import sys
import sysconfig
from pathlib import Path

import eploop

HERE = Path(__file__).parent
OUTPUT = HERE / "_build" / sysconfig.get_config_var("SOABI")
PACKAGE = Path(eploop.__file__).parent


def is_current(door):
    """True if the built door is newer than all it was made from."""
    built = OUTPUT / f"{door.stem}{sysconfig.get_config_var('EXT_SUFFIX')}"
    if not built.exists():
        return False
    sources = [door, *PACKAGE.rglob("*.pxd"), *PACKAGE.glob("poller*.so")]
    return all(built.stat().st_mtime > source.stat().st_mtime for source in sources)


def build():
    """Build what is out of date, and put the folder on sys.path."""
    stale = [door for door in sorted(HERE.glob("*_door.pyx")) if not is_current(door)]
    if stale:
        compile_doors(stale)
    if str(OUTPUT) not in sys.path:
        sys.path.insert(0, str(OUTPUT))


def compile_doors(doors):
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension

    modules = cythonize(
        [Extension(door.stem, [str(door)], extra_compile_args=["-O1"]) for door in doors],
        include_path=[str(PACKAGE.parent)],
        build_dir=str(OUTPUT / "c"),
        compiler_directives={"language_level": 3},
        nthreads=os.cpu_count() or 1,
        force=True,
        quiet=True,
    )
    distribution = Distribution({"name": "eploop-test-doors", "ext_modules": modules})
    command = distribution.get_command_obj("build_ext")
    command.build_lib = str(OUTPUT)
    command.build_temp = str(OUTPUT / "o")
    command.parallel = os.cpu_count() or 1
    command.verbose = 0
    command.ensure_finalized()
    command.run()


if __name__ == "__main__":
    build()
