"""Runs of an experiment over seeds and a grid of settings: their plan, their training and their results."""
