"""Launches as pytest parameters."""
import pytest


def wanted_loops(config):
    """The loops that the run is about, as `--loops` has them: `asyncio` and modes."""
    return config.getoption("--loops").split(",")


def marked(launches):
    """Parameters of these launches; what cannot run here is skipped, saying why."""
    params = []
    for launch in launches:
        name = launch.missing()
        marks = [pytest.mark.skip(reason=f"{name} is not installed")] if name else []
        params.append(pytest.param(launch, id=str(launch), marks=marks))
    return params
