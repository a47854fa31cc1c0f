"""`python -m eploop`: see `eploop.launch.main`."""
import sys

from eploop.launch import main

if __name__ == "__main__":
    sys.exit(main())
