"""Weights as safetensors bytes, and checkpoints on disk that are whole or not there."""
