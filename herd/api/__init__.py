"""The Python API for scripts and notebooks; ``import herd`` provides it under shorter names."""
