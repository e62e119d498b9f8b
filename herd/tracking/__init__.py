"""The points of a run in TensorBoard and in Weights & Biases: the only door to both packages."""
