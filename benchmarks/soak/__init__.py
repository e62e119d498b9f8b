"""Tests a real run under random faults: ``python -m benchmarks.soak FILE --minutes 60 --faults 300``."""
