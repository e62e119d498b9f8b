"""Environments that cannot share a process: each plays in one of its own, and what it sees comes over shared memory."""
