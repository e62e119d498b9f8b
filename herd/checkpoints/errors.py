"""What can be wrong with weights or a checkpoint; every message is one line for the operator."""


class CheckpointError(Exception):
    """Weights or a checkpoint that cannot be written, read or used."""


class TornCheckpointError(CheckpointError):
    """A checkpoint that is incomplete or damaged, where an older one may still be whole."""


class ForeignCheckpointError(CheckpointError):
    """A whole checkpoint that is not this run's: of another run, network or environment; an older one may be this run's."""
