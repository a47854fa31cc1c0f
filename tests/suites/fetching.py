"""Source distributions and environments, by pip, into a cache folder."""
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Place:
    """Where a suite lies: its unpacked sources, and the Python that runs it."""

    sources: Path
    python: Path


def suites():
    with (HERE / "suites.toml").open("rb") as file:
        return tomllib.load(file)


def default_cache():
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "eploop-suites"


def fetch(cache, name, suite):
    """The suite's place, made if it is not there."""
    cache.mkdir(parents=True, exist_ok=True)
    return Place(sources(cache, name, suite["version"]), environment(cache, name, suite))


def sources(cache, name, version):
    """The folder of the unpacked source distribution."""
    target = cache / f"{name}-{version}"
    if not target.exists():
        print(f"fetching {name} {version}", flush=True)
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            pip(sys.executable, "download", "--no-deps", f"--no-binary={name}",
                f"--dest={folder}", f"{name}=={version}")
            archive, = Path(folder).glob("*.tar.gz")
            with tarfile.open(archive) as file:
                file.extractall(folder, filter="data")
            unpacked, = (path for path in Path(folder).iterdir() if path.is_dir())
            unpacked.rename(target)
    return target


def environment(cache, name, suite):
    """A Python in an environment that has what the suite needs; eploop is not installed there."""
    wanted = hashlib.sha256(repr(sorted(suite["install"])).encode()).hexdigest()[:8]
    folder = cache / "{}-python{}.{}-{}".format(name, *sys.version_info[:2], wanted)
    python, finished = folder / "bin" / "python", folder / "finished"
    if not finished.exists():
        print(f"installing {' '.join(suite['install'])}", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip(python, "install", *suite["install"])
        finished.touch()
    return python


def pip(python, *arguments):
    subprocess.run([python, "-m", "pip", "--disable-pip-version-check", "-q", *arguments],
                   check=True)
