"""Runs of one experiment over seeds and a grid of settings: which there are, training them, and what came of it."""
