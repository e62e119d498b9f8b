"""Weights as safetensors bytes, and checkpoints that are written atomically."""
