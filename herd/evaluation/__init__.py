"""Plays whole games with a run's checkpoint, and reports scores with intervals and the protocol, or records a video."""
