"""The dashboard's rows: the speed of the run, then the path of a frame from an actor to a score, then the parts that a run may have."""

from observability.rows import learner, parts, run, scores

ROWS = (run.RUN, run.ACTORS, learner.QUEUE, learner.LEARNER, learner.WEIGHTS, scores.SCORES, run.WIRE, *parts.ROWS)
