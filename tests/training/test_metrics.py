"""The metrics that a loss names."""

from __future__ import annotations

import pytest
import torch

from herd.components.losses.api import Metric
from herd.components.user_code import UserCodeError
from herd.training.metrics import MAX_METRICS, Measured, MetricSums
from herd.training.parallel import OneShard


def _of(**numbers: float) -> dict[str, Metric]:
    return {name: Metric(torch.tensor(value)) for name, value in numbers.items()}


def test_means_divide_sums_over_all_parts() -> None:
    sums = MetricSums()
    for total, rows, share in ((6.0, 2, 0.25), (1.0, 5, 0.5), (0.0, 0, 0.0)):
        nothing = Metric(torch.tensor(0.0), torch.tensor(0))
        mean = Metric(torch.tensor(total), torch.tensor(rows), cost=2.0)
        sums.add({"mean": mean, "sum": Metric(torch.tensor(share)), "no_rows": nothing})
    assert sums.measured(sums.sums(OneShard()).tolist()) == {"mean": Measured(1.0, 2.0), "sum": Measured(0.75), "no_rows": Measured(0.0)}


def test_invalid_or_inconsistent_metrics_are_refused() -> None:
    with pytest.raises(UserCodeError, match="'Big name'"):
        MetricSums().add(_of(**{"Big name": 1.0}))
    with pytest.raises(UserCodeError, match="clipped_share, which is another column"):
        MetricSums().add(_of(clipped_share=1.0))
    with pytest.raises(UserCodeError, match="at most"):
        MetricSums().add(_of(**{f"number_{number}": 1.0 for number in range(MAX_METRICS + 1)}))
    with pytest.raises(UserCodeError, match="scalars"):
        MetricSums().add({"row": Metric(torch.zeros(3))})
    sums = MetricSums()
    sums.add(_of(one=1.0))
    with pytest.raises(UserCodeError, match="other"):
        sums.add(_of(other=1.0))
