"""Metrics of training and evaluation: updates, tasks, files and scores. Metrics of a conversation are beside its messages."""

from __future__ import annotations

from herd.telemetry.metrics import Exporters

_evaluator = Exporters("evaluator")
_learner = Exporters("learner")

LEARNER_ENV_FRAMES = _learner.counter(
    "herd_learner_env_frames_total",
    "env_frames",
    "Env frames trained on for the first time since this process started. Replayed frames do not count.",
)
RUN_ENV_FRAMES = _learner.gauge(
    "herd_learner_run_env_frames",
    "env_frames",
    "Env frames trained on by all shards since the run began. A restart goes back to the count of the checkpoint.",
)
RUN_IS_OVER = _learner.gauge(
    "herd_learner_run_is_over", "1", "1 when the run has reached its stop condition and this shard waits for a signal; 0 before."
)
LEARNER_UPDATES = _learner.counter("herd_learner_updates_total", "updates", "Optimizer steps since this process started.")
UPDATES_SKIPPED = _learner.counter(
    "herd_learner_updates_skipped_total",
    "updates",
    "Updates that were skipped because their gradient was not finite. Every shard counts each.",
)
UPDATES_CLIPPED = _learner.counter(
    "herd_learner_updates_clipped_total",
    "updates",
    "Updates whose gradient was clipped by optimizer.max_gradient_norm. Every shard counts each.",
)
EXPLAINED_VARIANCE = _learner.gauge(
    "herd_learner_explained_variance_ratio",
    "1",
    "Share of the variance of the value targets that the values explain, on one batch: 1 for perfect values, 0 for a constant. NaN if all"
    " targets are equal.",
)
EFFECTIVE_SAMPLE_SIZE = _learner.gauge(
    "herd_learner_effective_sample_size_ratio",
    "1",
    "Share of a batch's rows that counts after importance sampling: (sum rho)^2 / (n sum rho^2) of its unclipped importance ratios.",
)
UPDATE_KL = _learner.gauge(
    "herd_learner_update_kl_nats", "nats", "KL(policy before an update || policy after it), mean over the rows of its batch."
)
LAYER_DEAD = _learner.gauge(
    "herd_learner_layer_dead_ratio",
    "1",
    "Share of a layer's units, or of a convolution's filters, that were 0 on a whole batch. Layer 1 is the first.",
    labels=("layer",),
)
LAYER_ALWAYS_ON = _learner.gauge(
    "herd_learner_layer_always_on_ratio",
    "1",
    "Share of a layer's units, or of a convolution's filters, that were above 0 on a whole batch.",
    labels=("layer",),
)

PHASES = ("wait", "agree", "replay", "assemble", "host_to_device", "forward_backward", "optimizer", "publish")
"""Phases of the learner's time; the phases of one update do not overlap."""
UPDATE_PHASE = _learner.counter(
    "herd_learner_update_phase_seconds_total",
    "seconds",
    "Time of the learner, by phase of the update. Divide by herd_learner_updates_total for the mean.",
    labels=("phase",),
    values=PHASES,
)
LEARNER_STARVED = _learner.counter(
    "herd_learner_starved_seconds_total", "seconds", "Time spent waiting for a full batch: actors are the bottleneck."
)
LOSS = _learner.gauge(
    "herd_learner_loss",
    "nats or squared return",
    "Loss of the last update by term, each times its cost: total per trained agent step, other terms per step that enters them. They add "
    "up to total if every step enters every term: no trust region rejects steps, and replayed ones have an entropy bonus too.",
    labels=("term",),
)
LEARNER_METRIC = _learner.gauge(
    "herd_learner_metric",
    "the loss's own",
    "Numbers that the loss names, of the last update, as in metrics.jsonl: entropy, mean_rho, loss_value, ...",
    labels=("name",),
)
GRADIENT_NORM = _learner.gauge("herd_learner_gradient_norm", "1", "Global norm of the last gradient before clipping.")
LEARNING_RATE = _learner.gauge("herd_learner_learning_rate", "1", "Learning rate of the last update.")
CHECKPOINTS_WRITTEN = _learner.counter("herd_learner_checkpoints_written_total", "checkpoints", "Checkpoints written completely to disk.")
CHECKPOINT_FAILURES = _learner.counter(
    "herd_learner_checkpoint_failures_total", "checkpoints", "Failed writes of a checkpoint. The previous checkpoint stays."
)
CHECKPOINT_UPDATES = _learner.gauge("herd_learner_checkpoint_updates", "updates", "Learner updates of the newest checkpoint.")
COPY_UPDATES = _learner.gauge(
    "herd_learner_copy_updates", "updates", "Learner updates of the newest checkpoint in the copy of the run (copy_to). 0 without one."
)
COPY_FAILURES = _learner.counter(
    "herd_learner_copy_failures_total", "attempts", "Failed attempts to bring the copy of the run (copy_to) up to date. Each is repeated."
)

FILES = ("metrics.jsonl", "report.json", "lineage.json")
"""Files that the learner writes to the run directory in addition to checkpoints."""
WRITE_FAILURES = _learner.counter(
    "herd_learner_write_failures_total",
    "writes",
    "Failed writes of a file of the run directory other than a checkpoint. The run continues without it.",
    labels=("file",),
    values=FILES,
)
TASK_ENV_FRAMES = _learner.counter(
    "herd_learner_task_env_frames_total", "env_frames", "Env frames trained on for the first time, by task.", labels=("task",)
)
EPISODES = _learner.counter("herd_learner_episodes_total", "episodes", "Games that actors reported as finished, by task.", labels=("task",))
EPISODE_RETURN = _learner.gauge(
    "herd_learner_episode_return_mean_100", "return", "Mean raw return of the last 100 finished games, by task.", labels=("task",)
)
EPISODE_LENGTH = _learner.gauge(
    "herd_learner_episode_length_mean_100", "agent_steps", "Mean length of the last 100 finished games, by task.", labels=("task",)
)
HUMAN_NORMALISED = _learner.gauge(
    "herd_learner_human_normalised_mean_capped",
    "1",
    "Mean over the tasks with human scores of (return - random) / (human - random), each at most 1, over the last 100 games of shard 0. "
    "Missing until each of these tasks has finished a game.",
)
EVALUATOR_EVALUATIONS = _evaluator.counter("herd_evaluator_evaluations_total", "evaluations", "Evaluations completed.")
EVALUATOR_EPISODES = _evaluator.counter(
    "herd_evaluator_episodes_total", "games", "Whole games played in completed evaluations.", counts_work=True
)
EVALUATOR_UPDATES = _evaluator.gauge(
    "herd_evaluator_evaluated_updates", "updates", "Learner updates of the last evaluated version.", labels=("agent",)
)
EVALUATOR_SCORE = _evaluator.gauge(
    "herd_evaluator_score", "return", "Mean raw return over the games of the last evaluation.", labels=("agent", "task")
)
EVALUATOR_AGGREGATE = _evaluator.gauge(
    "herd_evaluator_normalised_score",
    "1 = human",
    "Human-normalised score over the tasks of the last evaluation (saber_...: record-normalised). Only if all tasks have reference scores.",
    labels=("agent", "statistic"),
)
EVALUATOR_FILE_FAILURES = _evaluator.counter(
    "herd_evaluator_file_failures_total", "points", "Points that could not be written to evaluation.jsonl."
)
