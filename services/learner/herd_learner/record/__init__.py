"""What a learner measures and leaves on disk: statistics, metrics, the curve, checkpoints and the report."""
