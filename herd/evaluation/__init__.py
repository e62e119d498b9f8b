"""Plays whole games with a run's checkpoint: scores with intervals and the protocol beside them, or one game as a video."""
