"""The dashboard's rows: the speed of the run, then the path of a frame from an actor to a score, stage by stage."""

from observability.rows import (
    actors,
    bandit,
    evaluator,
    frames_per_second,
    inference,
    learner,
    population,
    queue,
    replay,
    scores,
    weights,
    wire,
)

ROWS = (
    frames_per_second.ROW,
    actors.ROW,
    inference.ROW,
    wire.ROW,
    queue.ROW,
    learner.ROW,
    weights.ROW,
    replay.ROW,
    bandit.ROW,
    population.ROW,
    scores.ROW,
    evaluator.ROW,
)
