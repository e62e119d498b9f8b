"""``loss.kind: custom``: the loss of docs/extending.md, from a file outside the repository."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from herd.components.user_code import UserCodeError
from tests.system.whole_runs import ROOT
from tests.training.small_runs import STEP, batch_of, run_of, trainer_of, values_of

PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    found = re.search(r"^```python\n# loss\.py\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    (tmp_path / "page_loss.py").write_text(found[1])
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_the_documented_custom_loss_trains_and_reports_its_metrics(folder: Path) -> None:
    options = {"clip": 0.001, "entropy_cost": 0.5}
    whole, parts = (
        trainer_of(
            run_of(
                learner={"batch_size": 5, "micro_batch_size": size},
                loss={"kind": "custom", "function": "page_loss:clipped", "options": options},
            )
        )
        for size in (5, 2)
    )
    before = {name: tensor.clone() for name, tensor in parts.weights().items()}
    expected, done = whole(batch_of(run_of()), STEP), parts(batch_of(run_of()), STEP)
    assert values_of(done.losses) == pytest.approx(values_of(expected.losses), rel=1e-4, abs=1e-5)
    assert list(done.losses) == ["loss_total", "loss_policy", "loss_value", "entropy", "ratios_clipped"]
    assert done.losses["ratios_clipped"].value > 0.5  # behaviour and target differ by far more than a thousandth
    assert done.losses["entropy"].cost == -0.5
    assert any(not tensor.equal(before[name]) for name, tensor in parts.weights().items())


def test_popart_refuses_a_custom_loss_without_targets(folder: Path) -> None:
    (folder / "plain_loss.py").write_text(
        "from page_loss import clipped\n\n\ndef plain(forward):\n    return clipped(forward)._replace(targets=None)\n"
    )
    run = run_of(loss={"kind": "custom", "function": "plain_loss:plain"}, value_scaling={"kind": "popart"})
    with pytest.raises(UserCodeError, match=r"^value_scaling\.kind popart needs a loss\.function that returns targets"):
        trainer_of(run)(batch_of(run), STEP)


def test_a_metric_named_as_the_whole_loss_is_refused(folder: Path) -> None:
    (folder / "total_loss.py").write_text(
        "from page_loss import clipped\n\n\ndef total(forward):\n    output = clipped(forward)\n"
        "    return output._replace(metrics={'loss_total': output.metrics['entropy']})\n"
    )
    with pytest.raises(UserCodeError, match=r"^the loss names a metric loss_total, which is the whole loss"):
        trainer_of(run_of(loss={"kind": "custom", "function": "total_loss:total"}))(batch_of(run_of()), STEP)


def test_options_that_a_custom_loss_does_not_accept_are_refused(folder: Path) -> None:
    with pytest.raises(UserCodeError, match=r"does not accept a Forward and loss\.options: .*clap"):
        trainer_of(run_of(loss={"kind": "custom", "function": "page_loss:clipped", "options": {"clap": 1}}))
