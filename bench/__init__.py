"""Measurements behind docs/results.md: `python -m bench.NAME [--quick]`, one JSON object on the last line."""
