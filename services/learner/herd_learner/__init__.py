"""Learner: receives unrolls, computes IMPALA's update, publishes weights, owns checkpoints."""
