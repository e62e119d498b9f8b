"""Errors of the user's own code end the learner as invalid input."""

from __future__ import annotations

from unittest import mock

import pytest
import torch
from herd_learner import loop as learner

from herd.components.user_code import UserCodeError
from herd.config.run import RunSettings
from herd.service.identity import Identity
from herd.service.process import ServiceProcess
from herd.service.startup import BadInputError


def test_a_custom_loss_that_is_refused_at_the_first_update_is_invalid_input() -> None:
    training = mock.MagicMock()
    training.__enter__.return_value.train.side_effect = UserCodeError("popart needs targets")
    with (
        ServiceProcess("learner", RunSettings(name="run"), Identity()) as process,
        mock.patch.object(learner, "join_group"),
        mock.patch.object(learner, "_make", return_value=training),
        pytest.raises(BadInputError, match=r"^popart needs targets$"),
    ):
        learner._learn(process, False, torch.device("cpu"), torch.float32)
