"""Herd beside Stable-Baselines3 and Sample Factory on the same tasks and cores: ``python -m benchmarks.peers --help``."""
