"""Runs all processes of a run on one machine: starts them, restarts what dies, shows what happens, stops them in order."""
