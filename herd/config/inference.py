"""The inference service's own settings; whether a run has one says ``actor.inference``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from herd.config.section import NonNegativeFloat, NonNegativeInt, Port, PositiveInt, Section

MAX_REPLICAS = 256


class InferenceSettings(Section):
    """One process of the inference service, which a run has where ``actor.inference`` is ``remote``: it acts for many actors at once."""

    replicas: Annotated[int, Field(ge=1, le=MAX_REPLICAS)] = 1
    """Processes that ``herd train`` starts on this machine; actors are dealt to them round-robin."""
    index: NonNegativeInt = 0
    """Number of this process in the run directory. ``herd train`` gives 0 to the root and 1, 2, ... to its replicas."""
    batch_size: PositiveInt = 64
    """Environments that are acted for at once; a request of more is a batch of its own."""
    deadline_milliseconds: NonNegativeFloat = 2.0
    """Longest that a request waits for others to fill a batch: half of an actor's Atari games take 5 ms for a step, which hides it.
    0: a batch is what came while the one before was computed."""
    max_environments: PositiveInt = 8192
    """Whose frame stacks and recurrent states are kept, 30 kB each on Atari, those of all agents together; the longest silent go
    first, and their actors send them again."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device that the learner trains on. ``auto``: a GPU if there is one."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of convolutions and matrix products. ``auto``: bfloat16 where the processor is faster with it."""
    threads: PositiveInt = 1
    """Torch threads, on a CPU."""
    paramserver: str = "tcp://127.0.0.1:7200"
    """Address of the parameter server."""
    host: str = "127.0.0.1"
    """Network interface that the request socket listens on."""
    port: Port = 7600
    """Port of the request socket. ``herd train`` replaces 0 with a free port, and gives each further replica a free port."""
    metrics_host: str = "127.0.0.1"
    """Network interface of the metrics and health endpoint."""
    metrics_port: Port = 0
    """Port of the metrics and health endpoint; 0 takes a free port."""
