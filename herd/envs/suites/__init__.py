"""One folder a suite, each with its ``SUITE``; those of other packages are found by entry points (herd/config/suites.py)."""
