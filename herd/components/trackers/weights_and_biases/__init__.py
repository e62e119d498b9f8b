"""Weights and biases."""
