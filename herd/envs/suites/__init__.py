"""Herd's own suites: one folder each, with its ``SUITE``. Suites of other packages are found by entry points (herd/config/suites.py)."""
