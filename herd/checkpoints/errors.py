"""Errors of weights and checkpoints; every message is one line for the operator."""


class CheckpointError(Exception):
    """Weights or a checkpoint cannot be written, read or used."""


class TornCheckpointError(CheckpointError):
    """A checkpoint is incomplete or damaged; an older one may be intact."""


class ForeignCheckpointError(CheckpointError):
    """An intact checkpoint belongs to another run, network or environment; an older one may belong to this run."""
