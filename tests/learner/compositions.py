"""Every combination of the parts of a run, and the page that shows which of them train.

``python -m tests.learner.compositions > docs/compositions.md`` writes the page.
"""

from __future__ import annotations

from itertools import product
from typing import Any, NamedTuple

from pydantic import ValidationError

from herd.config.settings import RunSettings
from herd.envs.make import environment_spec

LOSSES: dict[str, dict[str, Any]] = {
    "impala": {"kind": "impala"},
    "dice": {"kind": "dice"},
    "laser": {"kind": "impala", "trust_region": "implied"},
}
SCALINGS = ("none", "multi_head", "popart")
REPLAYS = ("none", "uniform", "shared")
CORES = ("none", "lstm")
AUXILIARIES = ("none", "pixel_control")
STRATEGIES = ("none", "pbt")
BATCH_SIZE, NUM_REPLAYED = 4, 2


class Cell(NamedTuple):
    loss: str
    scaling: str
    core: str
    replay: str
    auxiliary: str
    strategy: str

    def __str__(self) -> str:
        return "-".join(self)


CELLS = [Cell(*cell) for cell in product(LOSSES, SCALINGS, CORES, REPLAYS, AUXILIARIES, STRATEGIES)]


def experiment_of(cell: Cell) -> dict[str, Any]:
    """An experiment of two Catch tasks, with as little as each part needs."""
    replay: dict[str, Any] = {"kind": cell.replay}
    if cell.replay != "none":
        replay["fraction"] = NUM_REPLAYED / BATCH_SIZE
    if cell.replay == "uniform":
        replay |= {"capacity_unrolls": 16, "minimum_fill_unrolls": 4}
    population = {"strategy": cell.strategy, "fitness": "episode_return", "fitness_episodes": 3, "burn_in_env_frames": 0}
    sweep = {"optimizer.learning_rate": {"draw": "log_uniform", "low": 1e-4, "high": 1e-2}} if cell.strategy == "pbt" else {}
    return {
        "agents": 2 if cell.strategy == "pbt" else 1,
        "sweep": sweep,
        "population": population,
        "env": {
            "suite": "catch",
            "tasks": ["catch", "catch_instructed"],
            "frame_height": 8,
            "frame_width": 8,
            "frame_stack": 2,
            "action_repeat": 1,
        },
        "network": {"torso": "mlp", "core": cell.core, "core_size": 8, "language": True, "last_action_and_reward": True},
        "algorithm": {"unroll_length": 5},
        "loss": LOSSES[cell.loss],
        "value_scaling": {"kind": cell.scaling},
        "auxiliary": {"kind": cell.auxiliary, **({"cell_size": 1} if cell.auxiliary == "pixel_control" else {})},
        "optimizer": {"schedule": "constant"},
        "replay": replay,
        "actor": {"environments": BATCH_SIZE},
        "learner": {"batch_size": BATCH_SIZE, "queue_batches": 8},
    }


def refusal_of(cell: Cell) -> str | None:
    """The error with which such a run is refused at its start; None if it trains."""
    try:
        settings = RunSettings.model_validate(experiment_of(cell))
    except ValidationError as error:
        return str(error.errors(include_url=False, include_context=False)[0]["msg"]).removeprefix("Value error, ")
    return settings.auxiliary.objection(environment_spec(settings.env))


def page() -> str:
    """The content of docs/compositions.md."""
    refusals = list(dict.fromkeys(sentence for cell in CELLS if (sentence := refusal_of(cell)) is not None))
    lines = [
        "# What goes together",
        "",
        "Written by `python -m tests.learner.compositions`. Every combination with a tick trains 20 updates in a test on what its own"
        " policy plays (`tests/learner/test_compositions.py`); a population copies half-way. A number refers to the error below with"
        " which the run is refused at its start.",
        "",
        "Each cell has four marks: alone, with `population.strategy: pbt`, with `auxiliary.kind: pixel_control`, and with both."
        f" These are {len(CELLS)} combinations.",
        "",
        "| loss | `value_scaling.kind` | `network.core` | " + " | ".join(f"`replay.kind` {replay}" for replay in REPLAYS) + " |",
        "| --- " * (3 + len(REPLAYS)) + "|",
    ]
    for loss, scaling, core in product(LOSSES, SCALINGS, CORES):
        marks = dict.fromkeys(REPLAYS, "")
        for replay, auxiliary, strategy in product(REPLAYS, AUXILIARIES, STRATEGIES):
            sentence = refusal_of(Cell(loss, scaling, core, replay, auxiliary, strategy))
            marks[replay] += " " + ("\N{CHECK MARK}" if sentence is None else str(refusals.index(sentence) + 1))
        lines.append(f"| {loss} | {scaling} | {core} |{' |'.join(marks.values())} |")
    lines += ["", "`laser` is `loss.kind: impala` with `loss.trust_region: implied`.", ""]
    lines += [f"{number}. {sentence}" for number, sentence in enumerate(refusals, start=1)]
    return "\n".join(lines).rstrip("\n") + "\n"


if __name__ == "__main__":
    print(page(), end="")
