"""The evaluator: follows a run's weights, freezes a version every so often, and plays it as `herd evaluate` does."""
