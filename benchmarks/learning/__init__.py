"""Measures how fast recipes learn: ``python -m benchmarks.learning`` (see ``__main__``)."""
