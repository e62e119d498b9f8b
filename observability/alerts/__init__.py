"""All alerts, by subject."""

from observability.alerts import bandit, disk, inference, learning, population, processes, progress, replay, weights, wire
from observability.rules import Group

GROUPS = (
    Group("herd-processes-alerts", processes.ALERTS),
    Group("herd-progress-alerts", progress.ALERTS),
    Group("herd-weights-alerts", weights.ALERTS),
    Group("herd-learning-alerts", learning.ALERTS),
    Group("herd-wire-alerts", wire.ALERTS),
    Group("herd-disk-alerts", disk.ALERTS),
    Group("herd-bandit-alerts", bandit.ALERTS),
    Group("herd-replay-alerts", replay.ALERTS),
    Group("herd-population-alerts", population.ALERTS),
    Group("herd-inference-alerts", inference.ALERTS),
)
