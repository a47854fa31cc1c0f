"""Can the rows fail? Each is run on a loop that ignores the parameter it is about."""
import asyncio
import functools
import inspect
from dataclasses import dataclass

from surface.contain import probe
from surface.kinds import Kind
from surface.reference import LOOP, covered

POPEN = (
    "cwd", "env", "executable", "pass_fds", "close_fds", "preexec_fn", "start_new_session",
    "process_group", "umask", "restore_signals", "user", "group", "extra_groups", "pipesize",
)


@dataclass(frozen=True)
class Deaf(Kind):
    """A kind of loop whose method ignores a parameter."""

    method: str = ""
    parameter: str = ""

    @property
    def loop_class(self):
        wrapped = getattr(super().loop_class, self.method)
        return type("Deaf", (super().loop_class,), {
            self.method: ignoring(wrapped, self.method, self.parameter)})

    def make(self):
        loop = super().make()
        bound = getattr(type(loop), self.method)
        setattr(loop, self.method, functools.partial(
            ignoring(bound, self.method, self.parameter), loop))
        return loop


def ignoring(wrapped, method, parameter):
    """A method that does what `wrapped` does, without that parameter."""
    signature = inspect.signature(getattr(asyncio.SelectorEventLoop, method))
    position = list(signature.parameters).index(parameter) if (
        parameter in signature.parameters) else None

    def without(loop, *args, **kwargs):
        kwargs.pop(parameter, None)
        if position is not None and len(args) >= position:
            kwargs.update(zip(list(signature.parameters)[position + 1:], args[position:],
                              strict=False))
            args = args[:position - 1]
        return wrapped(loop, *args, **kwargs)

    return without


def optional_parameters():
    """(method, parameter) of all that have a default, and what Popen takes."""
    for method, parameters in LOOP.items():
        known = inspect.signature(getattr(asyncio.SelectorEventLoop, method)).parameters
        for parameter in parameters.split():
            found = known.get(parameter)
            if parameter not in ("args", "kwargs", "nbytes") and (
                    found is None or found.default is not found.empty):
                yield method, parameter
    for parameter in POPEN:
        yield "subprocess_exec", parameter


def unnoticed(rows, kind):
    """The optional parameters that a loop of this kind could ignore without a row failing."""
    for method, parameter in optional_parameters():
        about = [row for row in rows if (method, parameter) in covered([row])
                 or (parameter in POPEN and row.subject == "Subprocess parameters")]
        deaf = Deaf(kind.name, method, parameter)
        if all(probe(row, deaf).is_good for row in about):
            yield method, parameter
