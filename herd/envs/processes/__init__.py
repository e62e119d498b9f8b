"""Environments in separate processes, for those that cannot share a process. Observations go through shared memory."""
