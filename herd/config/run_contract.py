"""The contract of a run: what its processes must agree on before they exchange unrolls and weights.

It consists of spaces, network and unroll layout. Settings of the learner alone (learning rate, batch size, loss costs) are not part of it,
so they may change in a rolling upgrade.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from herd.contract.unroll import UnrollLayout

if TYPE_CHECKING:
    from collections.abc import Mapping

    from herd.config.run import RunSettings
    from herd.contract.spaces import EnvSpec


def run_layout(settings: RunSettings, spec: EnvSpec) -> UnrollLayout:
    """Return the layout of this run's unrolls."""
    return UnrollLayout(
        unroll_length=settings.algorithm.burn_in + settings.algorithm.unroll_length,
        burn_in=settings.algorithm.burn_in,
        frame_stack=spec.frame_stack,
        frame_shape=spec.frame_shape,
        actions=spec.actions,
        num_parameters=settings.action.num_parameters(spec.actions),
        state_size=settings.network.core.state_size(),
        vector_size=spec.vector_size,
        instruction_length=spec.instruction_length,
        num_tasks=len(spec.task_names),
        num_words=spec.num_words,
    )


def objection_of_parts(settings: RunSettings, spec: EnvSpec) -> str | None:
    """Say why the parts of a run cannot play environments of ``spec``, in one sentence that names the setting; None if they can."""
    if settings.network.language and not spec.instruction_length:
        return "network.language needs environments with instructions, and these have none"
    parts = (settings.auxiliary, settings.network.torso, settings.network.core, settings.action, settings.loss)
    return next((objection for part in parts if (objection := part.objection(spec)) is not None), None)


def learner_inputs(settings: RunSettings, spec: EnvSpec) -> str:
    """Describe in one line what the learner trains on, so that a user sees which task is learned."""
    shaping = settings.algorithm.reward_shaping
    rewards = {"none": "as given", "clip": "clipped to [-1, 1]"}.get(shaping, f"shaped ({shaping})")
    height, width, _ = spec.frame_shape
    normalization = ", less their running mean, divided by their deviation"
    divided = normalization if settings.network.input_centering == "mean" else ", divided by 255"
    pixels = divided if settings.network.torso.follows_design else ""  # a user's own torso gets the bytes
    normalized = normalization if settings.network.normalizes_vector(spec) else ""
    parts = [
        *([f"picture {height}x{width}x{spec.observation_channels}, uint8{pixels}"] if spec.has_frames else []),
        *([f"vector of {spec.vector_size} numbers{normalized}"] if spec.vector_size else []),
        *(["instruction"] if settings.network.language else []),
        *(["last action", "last reward clipped to [-1, 1]"] if settings.network.last_action_and_reward else []),
    ]
    repeats = f"two runs differ ({settings.what_cannot_repeat or 'deterministic false'})"
    if settings.can_repeat:
        repeats = "repeats exactly" if settings.stop.wall_seconds is None else "repeats exactly, up to the time limit"
    return f"rewards: {rewards} · observation: {' + '.join(parts)} · actions: {spec.actions} · seed {settings.seed}: {repeats}"


def contract_digest(settings: RunSettings, spec: EnvSpec) -> str:
    """Hex SHA-256 of the contract part of ``settings``; equal in all processes of a run."""
    without = set() if settings.action.mixes_with_uniform else {"uniform_share"}  # or older runs could not be continued
    contract = {
        "spec": asdict(spec),
        "network": settings.network.model_dump(mode="json"),
        "action": settings.action.model_dump(mode="json", exclude=without),
        "head": settings.loss.head,
        "unroll_length": settings.algorithm.unroll_length,
        "reward_shaping": settings.algorithm.reward_shaping,
    }
    if settings.value_scaling.kind != "none":
        contract["num_values"] = settings.value_scaling.num_values(len(spec.task_names))
    if settings.algorithm.burn_in:
        contract["burn_in"] = settings.algorithm.burn_in
    return hashlib.sha256(json.dumps(contract, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Origin:
    """Identifies the run that a checkpoint belongs to: written into the checkpoint's state, and compared before the checkpoint is used."""

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
