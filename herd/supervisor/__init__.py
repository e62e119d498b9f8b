"""Runs all processes of a run on one machine: starts them, restarts those that fail, shows their state, and stops them in order."""
