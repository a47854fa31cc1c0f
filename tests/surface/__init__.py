"""A probe of asyncio's whole interface, method by method and parameter by parameter.

    python tests/surface                            # one table, on every loop at hand
    python tests/surface --markdown docs/features.md

Each row is a short function that observes an effect and raises if it is not there. The rows stand
in `rows_*.py`, one subject each; `reference` lists what they must cover.
"""
