"""A trained policy that chooses actions. It keeps the state between rows, so that a caller passes only what an environment returns.

E environments, S frames in a stack, H W C one frame, D numbers of a vector, P parameters of an action distribution, M entries of a
mask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from herd.acting.policy import LocalPolicy, inference_precision
from herd.acting.row_state import RowState
from herd.components.suites import make_environments, make_reader
from herd.components.suites.api import Observation, Transition
from herd.components.suites.reading import FRAME, MASK, VECTOR, WORDS
from herd.evaluation.play import drawn_from
from herd.service.host import usable_cpus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from herd.acting.policy import PolicyStep
    from herd.acting.temperatures import Bounds
    from herd.components.suites.api import BatchedEnvironment
    from herd.config.run import RunSettings
    from herd.contract.spaces import EnvSpec
    from herd.evaluation.trained_run import TrainedRun


class TrainedPolicy:
    """The policy of a checkpoint, for one task in one environment or in a batch of environments.

    It keeps the recurrent state, the stack of frames, the last action and reward, and DiCE's temperatures, as actors do in training.
    """

    def __init__(
        self,
        run: TrainedRun,
        task_id: int = 0,
        *,
        num_environments: int | None = None,
        greedy: bool = False,
        seed: int = 0,
        ranges: Sequence[Bounds] | None = None,
    ) -> None:
        """Start before the first row.

        Args:
            run: the run with the weights.
            task_id: number of the task that is played.
            num_environments: E of `act`; None: observations belong to one environment and have no leading axis.
            greedy: take the most probable action instead of sampling.
            seed: random seed of the sampling and of DiCE's temperatures.
            ranges: ranges of 1/tau, by task; None: tau is 1.

        """
        self.spec: EnvSpec = run.spec
        """Spaces of the environments."""
        self.settings: RunSettings = run.settings
        """Settings of the run's training."""
        self.learner_updates = run.learner_updates
        """Learner updates of the checkpoint."""
        self.env_frames = run.env_frames
        """Env frames of training up to the checkpoint; None if the checkpoint does not say."""
        self.task_name = run.spec.task_names[task_id]
        self.last_step: PolicyStep | None = None
        """Parameters of the policy [E, P], values [E, K] and core state of the last row; None before the first row."""
        self._task_id = task_id
        self._num_environments = num_environments
        self._seed = seed
        self._ranges = ranges
        self._reader = make_reader(run.settings.env, self.task_name)
        self._policy = LocalPolicy(run.agent, seed=seed, precision=inference_precision(run.settings), greedy=greedy)
        self._state: RowState | None = None
        self._stack = np.zeros((0, 0, 0, 0), np.uint8)

    def make_environments(self, num_environments: int = 1, *, seed: int = 0) -> BatchedEnvironment:
        """Make Herd's own environments of the task, with the same preprocessing as in training, to be stepped with `act`."""
        env = self.settings.env.model_copy(update={"tasks": (self.task_name,)}) if len(self.spec.task_names) > 1 else self.settings.env
        num_threads = min(usable_cpus(), num_environments)
        return make_environments(env, num_environments=num_environments, first_slot=0, seed=seed, num_threads=num_threads)

    def reset(self) -> None:
        """Reset all state: the next row starts new games."""
        self._state = None
        self.last_step = None

    def act(self, observation: Any, *, reward: Any = None, reset: Any = None, mask: Any = None) -> Any:
        """Choose actions for one row. Rows must be passed in order, each once.

        Two kinds of observations are accepted (see docs/python-api.md):

        - the observations of a plain environment, or of ``num_environments`` of them. For the suite gymnasium these are the results of
          ``reset`` and ``step``, or those of a vector environment; for other suites the input of `PlainReader`.
        - the `Observation` of ``reset`` and the `Transition` of ``step`` of Herd's own environments (`make_environments`).

        Args:
            observation: the row to act on.
            reward: reward of the step that led to this row, [E] or a number. Required from the second row of a game on if the network
                uses it (``network.last_action_and_reward``). Not allowed with Herd's environments, whose rows contain it.
            reset: whether a game starts with this row, [E] or a bool. None: a game starts at the first row and after `reset`. Not allowed
                with Herd's environments.
            mask: what is allowed, as the environment gives it (``info["action_mask"]``), or bool [E, M]. Required if the environments have
                masks that are not part of observations. Each row must allow at least one value of each number, also where a game is
                over. Not allowed with Herd's environments.

        Returns:
            Actions as the environment takes them, an int if there is one discrete action; those of ``num_environments`` as vector
            environments of gymnasium take them, int64 [E] in this case. For Herd's environments [E, *shape] of ``spec.actions``.

        Raises:
            ValueError: the observation is invalid, the reward is missing, or a mask allows nothing; one line.

        """
        if isinstance(observation, Observation | Transition):
            if reward is not None or reset is not None or mask is not None:
                raise ValueError("reward, reset and mask must be omitted with Herd's environments, whose rows contain them")
            return self._step(observation).actions
        num_environments = self._num_environments or 1
        observations = [observation] if self._num_environments is None else self._reader.rows(observation, num_environments)
        parts = [self._reader.parts(each) for each in observations]
        starts = _per_environment(self._state is None if reset is None else reset, np.bool_, num_environments, "reset") | (
            self._state is None
        )
        rewards = self._rewards(reward, starts)
        row = self._observed(parts, starts, self._masks(parts, mask))
        if self._state is None:
            actions = self._step(row).actions
        else:
            no = np.zeros(num_environments, np.bool_)
            actions = self._step(Transition(row, rewards, terminated=no, truncated=no, valid=~no, finished=())).actions
        own = self._reader.actions(actions)
        return own[0] if self._num_environments is None else self._reader.batched(own)

    def _step(self, row: Observation | Transition) -> PolicyStep:
        """Update the state with a row and choose actions for it."""
        if isinstance(row, Transition):
            if self._state is None or self.last_step is None:
                raise ValueError("the first row must be the result of the environment's reset")
            self._state.advance(self.last_step, row)
            observation = row.observation
        else:
            observation = row
            num_environments = len(observation.game_reset)
            temperatures = drawn_from(self._ranges, seed=self._seed)(np.full(num_environments, self._task_id, np.int32))
            self._state = RowState(self.spec, self.settings.network, temperatures, num_environments=num_environments)
        self.last_step = self._policy.collect(self._policy.submit(self._state.rows(observation)))
        return self.last_step

    def _masks(self, parts: list[dict[str, NDArray[Any]]], mask: Any) -> NDArray[np.bool_] | None:
        """Return what is allowed, [E, M]; None if these actions have no mask."""
        if not self.spec.actions.mask_size:
            if mask is not None:
                raise ValueError(f"these environments were trained without masks: their actions are {self.spec.actions}")
            return None
        if mask is None:
            if MASK not in parts[0]:
                raise ValueError("these environments have masks: act(observation, mask=...)")
            masks = np.stack([part[MASK] for part in parts])
        else:
            masks = np.stack([self._reader.mask(each) for each in ([mask] if self._num_environments is None else mask)])
        groups = np.cumsum((0, *self.spec.actions.num_choices[:-1]))
        # Environments of a batch may leave the mask in their observations empty where a game is over: they ignore this action.
        is_checked = mask is not None or self._num_environments is None
        if is_checked and not np.logical_or.reduceat(masks, groups, axis=1).all():
            raise ValueError("a mask allows no action: each row needs one, also where a game is over")
        return masks

    def _observed(self, parts: list[dict[str, NDArray[Any]]], starts: NDArray[np.bool_], masks: NDArray[np.bool_] | None) -> Observation:
        """Build a row as Herd's environments return it; [E, ...] each."""
        vector = np.stack([part[VECTOR] for part in parts]) if VECTOR in parts[0] else None
        if vector is not None and not np.isfinite(vector).all():
            raise ValueError("the observation contains a number that is not finite")
        if FRAME in parts[0]:
            frames = np.stack([part[FRAME] for part in parts]).transpose(0, 3, 1, 2)
            channels = frames.shape[1]
            shape = (len(parts), self.spec.frame_stack * channels, *frames.shape[2:])
            older = self._stack if self._state is not None else np.zeros(shape, np.uint8)
            self._stack = np.empty(shape, np.uint8)
            self._stack[:, :-channels] = older[:, channels:]
            self._stack[starts] = 0
            self._stack[:, -channels:] = frames
        words = np.stack([part[WORDS] for part in parts]) if WORDS in parts[0] else None
        return Observation(self._stack, starts, words, vector, masks)

    def _rewards(self, reward: Any, starts: NDArray[np.bool_]) -> NDArray[np.float32]:
        if reward is None:
            if self.settings.network.last_action_and_reward and not starts.all():
                raise ValueError("this network needs the last reward: act(observation, reward=...)")
            reward = 0.0
        return _per_environment(reward, np.float32, len(starts), "reward")


def _per_environment(value: Any, dtype: type[np.generic], num_environments: int, name: str) -> NDArray[Any]:
    array = np.asarray(value, dtype)
    if array.shape not in {(), (num_environments,)}:
        raise ValueError(
            f"{name} must be one value, or one for each of {num_environments} environments, not an array of shape {array.shape}"
        )
    return np.broadcast_to(array, (num_environments,)).copy()
