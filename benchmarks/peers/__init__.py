"""Herd beside Stable-Baselines3, Sample Factory and a PPO on envpool on the same tasks and cores: ``python -m benchmarks.peers --help``."""
