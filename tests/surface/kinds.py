"""The loops that the rows run on: asyncio's own, uvloop where it is installed, ours."""
import asyncio
import importlib
from dataclasses import dataclass

NAMES = ("asyncio", "uvloop", "eploop:edge", "eploop:oneshot", "eploop:level")


@dataclass(frozen=True)
class Kind:
    """A kind of loop.

    Attributes:
        name: One of `NAMES`.
    """

    name: str

    @property
    def package(self):
        return self.name.partition(":")[0]

    @property
    def mode(self):
        return self.name.partition(":")[2]

    @property
    def version(self):
        """The version of the package, or "" for Python's own."""
        if self.package == "asyncio":
            return ""
        return importlib.import_module(self.package).__version__

    def is_available(self):
        try:
            importlib.import_module(self.package)
        except ImportError:
            return False
        return True

    def make(self):
        """A new event loop."""
        if self.package == "asyncio":
            return asyncio.SelectorEventLoop()
        module = importlib.import_module(self.package)
        return module.new_event_loop(self.mode) if self.mode else module.new_event_loop()

    @property
    def loop_class(self):
        loop = self.make()
        loop.close()
        return type(loop)

    def policy(self):
        """A new event-loop policy."""
        if self.package == "asyncio":
            return asyncio.DefaultEventLoopPolicy()
        module = importlib.import_module(self.package)
        return module.EventLoopPolicy(self.mode) if self.mode else module.EventLoopPolicy()

    def run(self, main, **options):
        """The package's own run()."""
        module = importlib.import_module(self.package)
        if self.mode:
            options["mode"] = self.mode
        return module.run(main, **options)


KINDS = {name: Kind(name) for name in NAMES}
