"""Writes one self-contained HTML page about a run."""
