"""Acting: a policy, and what environments carry from row to row for it; for actors, evaluation and videos alike."""
