"""Starts and supervises the processes of a run: which there are, where they run, and what happens when one ends."""
