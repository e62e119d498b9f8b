"""Settings of the inference service. ``actor.inference`` determines whether a run has one."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from herd.components.settings import NonNegativeFloat, PositiveInt, Section

MAX_REPLICAS = 256


class InferenceSettings(Section):
    """One process of the inference service, which acts for many actors at once. A run has it if ``actor.inference`` is ``remote``."""

    replicas: Annotated[int, Field(ge=1, le=MAX_REPLICAS)] = 1
    """Number of processes that ``herd train`` starts on this machine. Actors are assigned to them round-robin."""
    batch_size: PositiveInt = 64
    """Number of environments in a batch. A larger request is a batch of its own."""
    deadline_milliseconds: NonNegativeFloat = 2.0
    """Longest time that a request waits for others to fill a batch. The default is hidden by the 5 ms that half of an actor's Atari games
    take for a step. 0: a batch contains what arrived while the previous one was computed."""
    max_environments: PositiveInt = 8192
    """Number of environments, of all agents together, whose frame stacks and recurrent states are kept. Each takes 30 kB on Atari. Beyond
    it, the states of those that were silent longest are dropped, and their actors send them again."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device that the service computes on. ``auto``: a GPU if there is one."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of convolutions and matrix products. ``auto``: bfloat16 if the processor is faster with it."""
    threads: PositiveInt = 1
    """Number of torch threads on a CPU."""
