"""The evaluator: follows a run's weights, freezes a version at intervals, and plays it as `herd evaluate` does."""
