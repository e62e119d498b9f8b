"""Which run a checkpoint belongs to: written into its state, and compared before the checkpoint is used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from herd.config.run_contract import contract_digest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from herd.config.run import RunSettings
    from herd.contract.spaces import EnvSpec


@dataclass(frozen=True, slots=True)
class Origin:
    """Identifies a run in its checkpoints."""

    run: str
    """The run's name."""
    contract: str
    """Digest of spaces, network and unroll layout."""
    settings: Mapping[str, Any]
    """The settings behind the digest as JSON values, by dotted key. They tell a user what differs, which two digests cannot."""

    @classmethod
    def of(cls, settings: RunSettings, spec: EnvSpec) -> Origin:
        """Return the origin of this run."""
        env = settings.env.model_dump(mode="json", include={"suite", "tasks", "action_repeat", *settings.env.makes_spaces})
        behind = {
            **_flat("env", env),
            **_flat("network", settings.network.model_dump(mode="json")),
            **_flat("action", settings.action.model_dump(mode="json")),
            "loss.kind": settings.loss.kind,
            "value_scaling.kind": settings.value_scaling.kind,
            "algorithm.unroll_length": settings.algorithm.unroll_length,
            "algorithm.burn_in": settings.algorithm.burn_in,
            "algorithm.reward_shaping": settings.algorithm.reward_shaping,
        }
        return cls(settings.name, contract_digest(settings, spec), behind)

    def as_json(self) -> dict[str, Any]:
        """For the state of a checkpoint."""
        return {"run": self.run, "contract": self.contract, "contract_settings": dict(self.settings)}

    def objection(self, state: Mapping[str, Any]) -> str | None:
        """Say why a checkpoint with this state does not belong to this run: half a line that names the difference. None if it does."""
        contract = state.get("contract")
        if contract != self.contract:
            theirs = state.get("contract_settings")
            differences = self._differences(theirs) if isinstance(theirs, dict) else ""
            return f"made by another network or environment ({differences or f'contract {str(contract)[:12]}, here {self.contract[:12]}'})"
        if state.get("run", self.run) != self.run:
            return f"made by another run (name {state['run']}, here {self.run})"
        return None

    def _differences(self, theirs: Mapping[str, Any]) -> str:
        differing = (key for key, here in self.settings.items() if key in theirs and theirs[key] != here)
        return "; ".join(f"{key} {theirs[key]}, here {self.settings[key]}" for key in differing)


def _flat(prefix: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a section by dotted keys; a part inside it is named by its kind."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        key = f"{prefix}.{name}"
        if isinstance(value, dict) and "kind" in value:
            flat |= {key: value["kind"], **_flat(key, {inner: own for inner, own in value.items() if inner != "kind"})}
        else:
            flat[key] = value
    return flat
