"""Which processes a run has, and where they run."""
