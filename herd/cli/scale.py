"""``herd scale actors N``: how many actors a release has, until somebody changes it again."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from herd.cli.cluster_options import add_cluster_options, cluster_of
from herd.cli.errors import CommandError, OneLineParser

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from herd.kube.cluster import Cluster
    from herd.kube.release import Release, Workload

_MOST = 100_000
"""Beyond what one cluster holds (5,000 nodes): a slip of the keyboard."""
_LOOK_SECONDS = 1.0
_COMPONENTS = ("actors", "actor")
_ELSEWHERE = "only actors change in number while a run goes on; the others are values of the chart (helm upgrade)"


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="herd scale",
        description="Changes how many actors a release has, and waits until they are ready. "
        "Refused where an autoscaler decides. The next helm upgrade sets the number of its values again.",
    )
    parser.add_argument("component", metavar="actors", help="what to scale: actors")
    parser.add_argument("replicas", type=int, metavar="N", help="how many there shall be; 0 pauses the run")
    parser.add_argument("--release", metavar="R", help="default: the only one of the namespace")
    add_cluster_options(parser)
    parser.add_argument("--timeout", type=float, default=300.0, metavar="S", help="seconds to wait until they are ready")
    parser.add_argument("--no-wait", action="store_true", help="return at once")
    return parser


def run(argv: Sequence[str]) -> int:
    """Scale; returns 0, or 1 where the actors were not ready in time."""
    options = _parser().parse_args(argv)
    if options.component not in _COMPONENTS:
        raise CommandError(f"{options.component}: {_ELSEWHERE}")
    if not 0 <= options.replicas <= _MOST:
        raise CommandError(f"the number of actors must be from 0 to {_MOST:,}, not {options.replicas:,}")
    if not 0 <= options.timeout < float("inf"):
        raise CommandError(f"--timeout must be a number of seconds, not {options.timeout:g}")
    with cluster_of(options) as cluster:
        return _scale(cluster, options)


def _scale(cluster: Cluster, options: argparse.Namespace) -> int:
    from herd.kube.release import find_release  # noqa: PLC0415  kubernetes loads; --help does without
    from herd.kube.scaling import autoscaler_of, set_replicas  # noqa: PLC0415

    release = find_release(cluster, options.release)
    actors = release.workload("actor")
    if actors is None or actors.kind != "Deployment":
        raise CommandError(f"release {release.name} in namespace {release.namespace} has no Deployment of actors")
    owner = autoscaler_of(cluster, actors.name)
    if owner is not None:
        raise CommandError(
            f"{owner} decides how many actors release {release.name} has: change its bounds, or turn it off, in the chart's values"
        )
    set_replicas(cluster, actors.name, options.replicas)
    print(f"{release.name}: actors {actors.wanted:,} -> {options.replicas:,}", flush=True)
    if actors.wanted_by_values:
        print(f"herd: the next helm upgrade needs --set actor.replicas={options.replicas}", file=sys.stderr, flush=True)
    return 0 if options.no_wait or _wait(cluster, release, actors, options.replicas, options.timeout) else 1


def _wait(cluster: Cluster, release: Release, actors: Workload, replicas: int, timeout: float) -> bool:
    """Show progress until the Deployment has settled on this number; False where it had not in time."""
    from herd.kube.errors import UnreachableError  # noqa: PLC0415
    from herd.kube.scaling import read_deployment  # noqa: PLC0415

    deadline = time.monotonic() + timeout
    said = ""
    while True:
        try:
            now = read_deployment(cluster, actors.name)
            line = f"{release.name}: {now.ready:,} of {replicas:,} actors ready" + (
                f", {now.present:,} pods" if now.present > replicas else ""
            )
        except UnreachableError as error:  # a busy API server; what was asked for stands
            now, line = actors, f"herd: {error}; trying again"
        if line != said:
            print(line, file=sys.stderr if now is actors else sys.stdout, flush=True)
            said = line
        if now is not actors and now.settled and now.wanted == replicas:
            return True
        if now is not actors and now.wanted != replicas:
            raise CommandError(f"somebody else asked for {now.wanted:,} actors meanwhile")
        if time.monotonic() >= deadline:
            print(f"herd: not ready after {timeout:g} s{_why(cluster, release)}", file=sys.stderr)
            return False
        time.sleep(min(_LOOK_SECONDS, max(0.0, deadline - time.monotonic())))


def _why(cluster: Cluster, release: Release) -> str:
    from herd.kube.errors import KubeError  # noqa: PLC0415
    from herd.kube.release import release_pods  # noqa: PLC0415
    from herd.kube.scaling import causes  # noqa: PLC0415

    try:
        found = causes(release_pods(cluster, release.name, "actor"))
    except KubeError:
        return ""
    return f": {found}" if found else ""
