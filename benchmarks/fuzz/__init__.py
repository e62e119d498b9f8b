"""Fuzzing: the decoder guided by coverage (decoder.py), the listening sockets of real processes (sockets.py)."""
