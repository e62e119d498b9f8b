"""Measures every stage of a run alone and all of them together, on this machine."""
