"""Bandit."""
