"""``herd status --release``: a release in a cluster, asked twice some seconds apart, so that there are rates."""

from __future__ import annotations

import json
import time
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from herd.cli.cluster_options import cluster_of
from herd.cli.errors import CommandError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from herd.cli.release_picture import ReleasePicture
    from herd.kube.cluster import Cluster
    from herd.kube.pods import Pod
    from herd.supervisor.readings import Readings

_SECONDS = 5.0
"""Between the two looks: several updates of a small network, a few of a deep one on a GPU."""
_MOST_ACTORS = 16
"""Enough for a mean wait within some percent."""
_FEWEST_ACTORS = 4
_METRICS_REQUESTS = 28
"""For both looks together; with the lists of pods, about 40 requests to an API server whatever the size of the release."""
_MOST_REPLICAS = 4
"""Replicas of the parameter server that are asked which version they hold."""
_MOST_NOTES = 5
_ALL_SHUT = "no pod was reached by the API server, which reads metrics for this command: does networkPolicy.metricsFrom leave it out?"


def show_release(options: argparse.Namespace) -> int:
    """Print the state of a release; returns the exit code."""
    seconds = _SECONDS if options.seconds is None else options.seconds
    if options.run_dirs:
        raise CommandError("run directories are of this machine; --release is in a cluster: ask for one of them")
    with cluster_of(options) as cluster:
        picture = take_picture(cluster, options.release, seconds, options.actors)
    if options.json:
        print(json.dumps(picture.as_json(), indent=2))
    else:
        from herd.cli.release_view import print_release  # noqa: PLC0415  after the questions: rich loads

        print_release(picture, show_all=options.all)
    return 0


def take_picture(cluster: Cluster, name: str, seconds: float, actors: int | None = None) -> ReleasePicture:
    """Look at a release, for ``seconds``, with the metrics of at most ``actors`` of its actors; None: as many as requests are left for.

    Raises:
        KubeError: there is no such release, or it may not be looked at. Pods that do not answer are notes in the picture.

    """
    from herd.kube.release import find_release, release_overview  # noqa: PLC0415

    release = find_release(cluster, name)
    pods = release_overview(cluster, release.name)
    moving, others = whom_to_ask(pods, actors)
    looks: list[Readings] = []
    if seconds:
        looks.append(_look(cluster, moving)[0])
    again_at = time.monotonic() + seconds
    from herd.cli.release_picture import make_picture  # noqa: PLC0415  pydantic loads, while rates are taken

    time.sleep(max(0.0, again_at - time.monotonic()))
    look, notes = _look(cluster, [*others, *moving])
    looks.append(look)
    return make_picture(release, pods, looks, notes, datetime.now(UTC))


def whom_to_ask(pods: Sequence[Pod], actors: int | None) -> tuple[list[Pod], list[Pod]]:
    """Choose pods that have started: all learners and some actors, whose rates are shown, and others, which are asked once."""
    from herd.kube.pods import spread  # noqa: PLC0415

    def running(*components: str) -> list[Pod]:
        return [pod for pod in pods if pod.state == "Running" and (pod.component in components)]

    sampled = {"actor", "learner", "paramserver-replica"}
    learners = running("learner")
    others = running(*({pod.component for pod in pods} - sampled)) + spread(running("paramserver-replica"), _MOST_REPLICAS)
    if actors is None:
        left = (_METRICS_REQUESTS - 2 * len(learners) - len(others)) // 2
        actors = min(_MOST_ACTORS, max(_FEWEST_ACTORS, left))
    return learners + spread(running("actor"), actors), others


def _look(cluster: Cluster, pods: Sequence[Pod]) -> tuple[Readings, list[str]]:
    from herd.kube.errors import UnreachableError  # noqa: PLC0415
    from herd.kube.pod_metrics import metrics_pages  # noqa: PLC0415
    from herd.supervisor.readings import Readings  # noqa: PLC0415
    from herd.telemetry.scrape import ScrapeError, parse  # noqa: PLC0415

    samples, problems, unreachable = {}, {}, False
    at = time.monotonic()
    for name, page in metrics_pages(cluster, pods).items():
        try:
            if isinstance(page, bytes):
                samples[name] = parse(page, name)
            else:
                problems[name] = str(page)
                unreachable |= isinstance(page, UnreachableError)
        except ScrapeError as error:
            problems[name] = str(error)
    notes = _notes(problems)
    if unreachable and not samples:
        notes.append(_ALL_SHUT)
    return Readings(at=at, samples=samples), notes


def _notes(problems: dict[str, str]) -> list[str]:
    """One line a cause: thousands of pods behind one closed door are one note."""
    causes = Counter(problems.values())
    notes = []
    for cause, times in causes.most_common(_MOST_NOTES):
        first = next(name for name, problem in problems.items() if problem == cause)
        notes.append(f"no metrics of {first}{f' and {times - 1} more' if times > 1 else ''}: {cause}")
    if len(causes) > _MOST_NOTES:
        notes.append(f"and {len(causes) - _MOST_NOTES} more causes")
    return notes
