"""The error of evaluations."""


class EvaluationError(Exception):
    """A run cannot be played or scored; one line."""
