"""How the trainer treats replayed rows and the trust region: which rows count, what is reported, and what PopArt's statistics see."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from herd.config.loading import SettingsError, load_settings
from herd.config.run import RunSettings
from herd.training.batch import BatchBuffer
from herd.training.trainer import Trainer, UpdateStatistics
from tests.training.small_runs import BATCH_SIZE, STEP, buffer_of, run_of, trainer_of, unrolls_of, values_of

torch.set_num_threads(1)

REPLAY = {"kind": "local", "fraction": 0.4, "capacity_unrolls": 100, "minimum_fill_unrolls": 1}
SHARED = {"kind": "shared", "fraction": 0.4}
NUM_REPLAYED = 2


def _settings(replay: Mapping[str, Any] = REPLAY, **changes: Any) -> RunSettings:
    return run_of(replay=replay, learner={"batch_size": BATCH_SIZE, "micro_batch_size": 2, "queue_batches": 9}, **changes)


def _batch(settings: RunSettings, arrays: dict[str, NDArray[Any]]) -> BatchBuffer:
    buffer = buffer_of(settings, arrays)
    buffer.set_counts(BATCH_SIZE - NUM_REPLAYED, NUM_REPLAYED)
    return buffer


def _unrolls(settings: RunSettings, *, far: float) -> dict[str, NDArray[Any]]:
    """All rows are valid. ``far`` is the distance of the policy that played the replayed rows; the others were played uniformly."""
    arrays = unrolls_of(settings)
    arrays["row_valid"][...] = True
    arrays["behaviour_parameters"][...] = 0.0
    arrays["behaviour_parameters"][BATCH_SIZE - NUM_REPLAYED :, :, 0] = far
    return arrays


def _update(settings: RunSettings, buffer: BatchBuffer) -> tuple[Trainer, UpdateStatistics]:
    trainer = trainer_of(settings)
    return trainer, trainer(buffer, STEP)


@pytest.mark.parametrize("loss", [{}, {"kind": "dice", "ablation": "baseline"}], ids=str)
def test_metrics_of_online_and_replayed_rows_are_separate(loss: dict[str, Any]) -> None:
    settings = _settings(loss={**loss, "trust_region": "implied", "trust_region_threshold": 0.2})
    arrays = _unrolls(settings, far=6.0)
    arrays["inverse_temperature"][...] = 1.0
    told = values_of(_update(settings, _batch(settings, arrays))[1].losses)
    assert told["rejected_share_online"] == 0.0
    assert told["rejected_share_replayed"] == 1.0
    assert told["kl_online"] < 0.2 < told["kl_replayed"]
    assert 0.8 < told["mean_rho_online"] <= 1.05
    assert told["mean_rho_replayed"] < told["mean_rho_online"]
    weights = np.array([BATCH_SIZE - NUM_REPLAYED, NUM_REPLAYED]) / BATCH_SIZE
    assert told["mean_rho"] == pytest.approx(weights @ [told["mean_rho_online"], told["mean_rho_replayed"]], rel=1e-5)


def test_a_batch_of_online_unrolls_has_no_replayed_metrics() -> None:
    settings = _settings(loss={"trust_region": "implied", "trust_region_threshold": 0.2})
    buffer = _batch(settings, _unrolls(settings, far=6.0))
    whole = _update(settings, buffer)[1].losses
    buffer.set_counts(BATCH_SIZE - NUM_REPLAYED, 0)
    told = _update(settings, buffer)[1].losses
    assert set(whole) - set(told) == {"mean_rho_replayed", "kl_replayed", "rejected_share_replayed"}
    assert told["mean_rho"].value == pytest.approx(told["mean_rho_online"].value)


def test_without_replay_and_trust_region_there_are_no_extra_metrics() -> None:
    told = _update(run_of(), buffer_of(run_of(), unrolls_of(run_of())))[1].losses
    assert set(told) == {"loss_total", "loss_policy", "loss_value", "entropy", "mean_rho"}


def test_rejected_rows_are_treated_as_invalid() -> None:
    """This holds for gradients and for every mean over the rows that were learned from."""
    gated, plain = _settings(loss={"trust_region": "implied", "trust_region_threshold": 0.2}), _settings()
    arrays = _unrolls(gated, far=6.0)
    of_gated = _update(gated, _batch(gated, arrays))
    arrays["row_valid"][BATCH_SIZE - NUM_REPLAYED :] = False
    of_plain = _update(plain, _batch(plain, arrays))
    for name, tensor in of_gated[0].weights().items():
        torch.testing.assert_close(tensor, of_plain[0].weights()[name], rtol=1e-6, atol=1e-8)
    told, expected = values_of(of_gated[1].losses), values_of(of_plain[1].losses)
    for name in ("loss_policy", "loss_value", "entropy"):
        assert told[name] == pytest.approx(expected[name], rel=1e-6)


def test_the_entropy_covers_only_online_rows() -> None:
    """Section 5.1 of LASER: replayed rows get no entropy bonus, so without any other cost their gradient is 0."""
    settings = _settings(loss={"entropy_cost": 1.0, "baseline_cost": 0.0, "clip_pg_rho_threshold": 1e-30})
    arrays = _unrolls(settings, far=0.0)
    online, _ = _update(settings, _batch(settings, arrays))
    for name in ("frames", "actions"):
        arrays[name][BATCH_SIZE - NUM_REPLAYED :] = arrays[name][0]
    changed, _ = _update(settings, _batch(settings, arrays))
    for name, tensor in online.weights().items():
        torch.testing.assert_close(changed.weights()[name], tensor, rtol=0.0, atol=1e-12)
    assert online.optimizer.param_groups[0]["lr"] > 0.0


def test_the_entropy_covers_replayed_rows_if_they_alone_are_trained_on() -> None:
    alone = {"replay": {**SHARED, "train_online": False}}
    settings = _settings(loss={"entropy_cost": 1.0, "baseline_cost": 0.0, "clip_pg_rho_threshold": 1e-30}, **alone)
    arrays = _unrolls(settings, far=0.0)
    arrays["row_valid"][: BATCH_SIZE - NUM_REPLAYED] = False
    trainer, update = _update(settings, _batch(settings, arrays))
    assert update.losses["entropy"].value > 0.5
    assert update.gradient_norm > 0.0
    before = trainer_of(settings).weights()
    assert any(not torch.equal(before[name], tensor) for name, tensor in trainer.weights().items())


def test_what_only_online_rows_provide_is_refused_without_them() -> None:
    alone = ["--replay.train_online", "false", "--value_scaling.kind", "popart"]
    with pytest.raises(SettingsError, match=r"replay\.train_online false needs value_scaling\.replayed true"):
        load_settings([Path("laser-quick")], alone, {})
    load_settings([Path("laser-quick")], [*alone, "--value_scaling.replayed", "true"], {})


@pytest.mark.parametrize(("replayed", "sees"), [(False, "online"), (True, "all")])
def test_popart_uses_accepted_rows_and_replayed_ones_if_set(replayed: bool, sees: str) -> None:
    def shift(*, far: float, trust_region: str, valid: slice) -> float:
        settings = _settings(
            value_scaling={"kind": "popart", "rate": 0.5, "replayed": replayed},
            loss={"trust_region": trust_region, "trust_region_threshold": 0.2},
        )
        arrays = _unrolls(settings, far=far)
        arrays["row_valid"][...] = False
        arrays["row_valid"][valid] = True
        trainer, _ = _update(settings, _batch(settings, arrays))
        return float(trainer.parts["value_statistics"].tensors()["shift"][0])

    online, everything = slice(0, BATCH_SIZE - NUM_REPLAYED), slice(None)
    of_online = shift(far=0.0, trust_region="implied", valid=online)
    of_all = shift(far=0.0, trust_region="implied", valid=everything)
    assert (of_all == of_online) == (sees == "online")
    # Rejected rows never enter the statistics, whatever the settings.
    assert shift(far=6.0, trust_region="implied", valid=everything) == of_online


def test_a_trust_region_without_v_trace_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"trust_region implied needs correction v_trace"):
        load_settings([], ["--loss.trust_region", "implied", "--loss.correction", "none"], {})
