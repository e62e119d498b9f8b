"""Policies and the state of environments between rows, for actors, evaluation and videos."""
