"""Fuzzing: of decoders and decision code, guided by coverage (decoder.py), and of the listening sockets of real processes (sockets.py)."""
