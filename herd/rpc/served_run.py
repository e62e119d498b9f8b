"""The check that a client belongs to the server's run and agents and has the same contract."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from herd.rpc.codec import printable

Difference = Literal["run", "agent", "contract"]


@dataclass(frozen=True, slots=True)
class ServedRun:
    """The run that a server serves; each request names the run, the agent and the contract."""

    server: str
    """Name of the server in messages."""
    address: str
    """The option that holds its address."""
    run_id: str
    contract: str
    num_agents: int

    def mismatch(self, run_id: str, agent: int, contract: str) -> tuple[Difference, str] | None:
        """Return how a client differs, and a sentence for its log; None if it belongs to this run."""
        theirs = printable(run_id, 64)  # foreign text goes into answers and logs
        if run_id != self.run_id:
            return "run", f"this {self.server} belongs to run {self.run_id}, not {theirs}: check {self.address} of run {theirs}"
        if agent >= self.num_agents:
            return "agent", (
                f"this {self.server} serves agents 0 to {self.num_agents - 1}, not {agent}: "
                f"start all processes of run {theirs} with the same agents setting"
            )
        if contract != self.contract:
            return "contract", (
                f"run {theirs}: contract {printable(contract, 12)} does not match this {self.server}'s {self.contract[:12]}: start all "
                "processes with the same env, network, algorithm.unroll_length, algorithm.burn_in and algorithm.reward_shaping settings"
            )
        return None
