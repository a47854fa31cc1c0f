"""Benchmarks of eploop against other asyncio event loops: `python -m bench --help`."""
