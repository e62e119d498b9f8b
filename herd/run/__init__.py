"""The directory of a run: its paths, settings, processes, journals and checkpoints. Only ``tensors`` needs torch."""
