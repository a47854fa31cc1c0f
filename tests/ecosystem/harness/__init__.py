"""What the ecosystem tests and `load.py` share: servers as child processes, and clients."""
