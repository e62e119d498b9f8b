"""Sends the points of a run to TensorBoard and Weights & Biases. Only this package imports theirs."""
