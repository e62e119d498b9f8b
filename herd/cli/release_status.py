"""``herd status --release``: reads a release in a cluster twice, some seconds apart, to compute rates."""

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
    from herd.launch.readings import Readings

_SECONDS = 5.0
"""Seconds between the two readings: time for several updates of a small network, or for a few of a deep one on a GPU."""
_MOST_ACTORS = 16
"""Number of actors, enough for a mean wait within a few percent."""
_FEWEST_ACTORS = 4
_METRICS_REQUESTS = 28
"""Limit for both readings together; with the lists of pods, about 40 requests to the API server for a release of any size."""
_MOST_REPLICAS = 4
"""Number of parameter server replicas that are asked for their version."""
_MOST_NOTES = 5
_ALL_SHUT = "the API server, which reads metrics for this command, could not reach any pod: check that networkPolicy.metricsFrom allows it"


def show_release(options: argparse.Namespace) -> int:
    """Print the state of a release; returns the exit code."""
    seconds = _SECONDS if options.seconds is None else options.seconds
    if options.run_dirs:
        raise CommandError("run directories (on this machine) and --release (in a cluster) cannot be combined")
    with cluster_of(options) as cluster:
        picture = take_picture(cluster, options.release, seconds, options.actors)
    if options.json:
        print(json.dumps(picture.as_json(), indent=2))
    else:
        from herd.cli.release_view import print_release  # noqa: PLC0415  loads rich, after the requests were made

        print_release(picture, show_all=options.all)
    return 0


def take_picture(cluster: Cluster, name: str, seconds: float, actors: int | None = None) -> ReleasePicture:
    """Read a release over ``seconds``, with the metrics of at most ``actors`` actors; None: as many as the limit of requests allows.

    Raises:
        KubeError: there is no such release, or access is denied. Pods that do not answer are notes in the picture.

    """
    from herd.kube.release import find_release, release_overview  # noqa: PLC0415

    release = find_release(cluster, name)
    pods = release_overview(cluster, release.name)
    moving, others = whom_to_ask(pods, actors)
    looks: list[Readings] = []
    if seconds:
        looks.append(_look(cluster, moving)[0])
    again_at = time.monotonic() + seconds
    from herd.cli.release_picture import make_picture  # noqa: PLC0415  loads pydantic, while rates are taken

    time.sleep(max(0.0, again_at - time.monotonic()))
    look, notes = _look(cluster, [*others, *moving])
    looks.append(look)
    return make_picture(release, pods, looks, notes, datetime.now(UTC))


def whom_to_ask(pods: Sequence[Pod], actors: int | None) -> tuple[list[Pod], list[Pod]]:
    """Choose started pods: all learners and some actors, for rates, and others that are asked only once."""
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
    from herd.launch.readings import Readings  # noqa: PLC0415
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
    """Return one line per cause, however many pods it affects."""
    causes = Counter(problems.values())
    notes = []
    for cause, times in causes.most_common(_MOST_NOTES):
        first = next(name for name, problem in problems.items() if problem == cause)
        notes.append(f"no metrics of {first}{f' and {times - 1} more' if times > 1 else ''}: {cause}")
    if len(causes) > _MOST_NOTES:
        notes.append(f"and {len(causes) - _MOST_NOTES} more causes")
    return notes
