"""The command line: `python tests/surface`, or `python -m tests.surface`."""
import sys
from pathlib import Path

if __name__ == "__main__":
    TESTS = Path(__file__).resolve().parent.parent
    # In place of this folder itself, whose modules are parts of a package.
    sys.path[0] = str(TESTS)
    sys.path.insert(1, str(TESTS.parent))
    from surface.command import main

    sys.exit(main())
