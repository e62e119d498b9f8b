"""Measures each stage of a run alone, and the whole system, on this machine."""
