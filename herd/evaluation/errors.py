"""What cannot be evaluated."""


class EvaluationError(Exception):
    """One line that says why a run cannot be played or scored."""
