"""A real run under random faults, and what it promised meanwhile: ``python -m benchmarks.soak FILE --minutes 60 --faults 300``."""
