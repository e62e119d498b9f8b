"""``herd logs COMPONENT``: what a release's pods print, several at once, each line behind its pod's name."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

from herd.cli.cluster_options import add_cluster_options, cluster_of
from herd.cli.errors import CommandError, OneLineParser, did_you_mean
from herd.topology import COMPONENT_NAMES

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Sequence

    from herd.kube.cluster import Cluster
    from herd.kube.log_following import Said
    from herd.kube.log_streams import LogWindow
    from herd.kube.pods import Pod
    from herd.kube.release import Release

_TAIL = 100
"""Lines of each pod that tell what happens now, some screens of them."""
_MOST_PODS = 10
_MOST_EVER = 50
"""Connections and threads; more lines than that nobody reads."""
_UNITS = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="herd logs",
        description="Prints the logs of a component's pods in the order of time, each line behind its pod's name. "
        "With --follow: goes on until Ctrl-C, through restarts, with pods that come.",
    )
    parser.add_argument("component", metavar="COMPONENT", help=", ".join(COMPONENT_NAMES))
    parser.add_argument("--release", metavar="R", help="default: the only one of the namespace")
    add_cluster_options(parser)
    parser.add_argument("--rank", type=int, metavar="N", help="only this learner, server or replica")
    parser.add_argument("--pod", metavar="NAME", help="only this pod")
    parser.add_argument("--follow", "-f", action="store_true", help="go on until Ctrl-C")
    parser.add_argument("--since", metavar="AGE", help="only lines younger than 30s, 10m, 2h, 1d")
    parser.add_argument("--tail", type=int, default=_TAIL, metavar="N", help="lines of each pod, the last ones; -1: all")
    parser.add_argument("--previous", action="store_true", help="of the containers before their last restart")
    parser.add_argument("--most-pods", type=int, default=_MOST_PODS, metavar="N", help="pods read at once, those in trouble first")
    parser.add_argument("--no-prefix", action="store_true", help="without the pods' names")
    return parser


def run(argv: Sequence[str]) -> int:
    """Print logs; returns 0, or 1 where no pod's log could be read."""
    options = _parser().parse_args(argv)
    component = _component(options.component)
    since = None if options.since is None else seconds_of(options.since)
    if options.tail < -1:
        raise CommandError(f"--tail must be -1 (all) or more, not {options.tail}")
    if not 1 <= options.most_pods <= _MOST_EVER:
        raise CommandError(f"--most-pods must be from 1 to {_MOST_EVER}, not {options.most_pods}")
    if options.previous and options.follow:
        raise CommandError("--previous is of containers that have ended: nothing to --follow")
    if options.rank is not None and component == "actor":
        raise CommandError("actors have no rank: choose one with --pod")
    with cluster_of(options) as cluster:
        from herd.kube.log_streams import LogWindow  # noqa: PLC0415  kubernetes loads; --help does without
        from herd.kube.release import find_release  # noqa: PLC0415

        release = find_release(cluster, options.release)
        window = LogWindow(since, None if options.tail < 0 else options.tail, options.previous)
        find = _finder(cluster, release, component, options)
        pods = find()
        _check_found(pods, release, component, options)
        _say_what_is_missing(pods, options.most_pods)
        if options.follow:
            return _follow(cluster, find, window, options)
        return _read(cluster, pods[: options.most_pods], window, options)


def seconds_of(age: str) -> float:
    """``30s``, ``10m``, ``2h``, ``1d``, or seconds; raises ``CommandError``."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", age)
    if match is None or not 0 < (seconds := float(match[1]) * _UNITS[match[2] or "s"]) < 1e9:
        raise CommandError(f"--since {age}: not an age such as 30s, 10m, 2h or 1d")
    return seconds


def _component(word: str) -> str:
    for name in (word, word.removesuffix("s")):
        if name in COMPONENT_NAMES:
            return name
    raise CommandError(f"{word}: no such component{did_you_mean(word, list(COMPONENT_NAMES))}; there are: {', '.join(COMPONENT_NAMES)}")


def _finder(cluster: Cluster, release: Release, component: str, options: argparse.Namespace) -> Callable[[], list[Pod]]:
    from herd.kube.pods import worst_first  # noqa: PLC0415
    from herd.kube.release import release_pods  # noqa: PLC0415

    def find() -> list[Pod]:
        pods = release_pods(cluster, release.name, component)
        chosen = [pod for pod in pods if options.rank in {None, pod.rank} and options.pod in {None, pod.name}]
        return worst_first(chosen) if len(chosen) > options.most_pods else chosen

    return find


def _check_found(pods: Sequence[Pod], release: Release, component: str, options: argparse.Namespace) -> None:
    if pods:
        return
    where = f"release {release.name} in namespace {release.namespace}"
    if options.pod is not None or options.rank is not None:
        chosen = f"pod {options.pod}" if options.pod is not None else f"rank {options.rank}"
        raise CommandError(f"{where} has no {component} with {chosen}")
    if release.workload(component) is None:
        components = ", ".join(workload.component for workload in release.workloads)
        raise CommandError(f"{where} has no {component}; it has: {components}")
    raise CommandError(f"{where} has no {component} pod now")


def _say_what_is_missing(pods: Sequence[Pod], most: int) -> None:
    if len(pods) > most:
        _note(f"{most} of {len(pods):,} pods, those in trouble first; choose one with --pod, or more with --most-pods")
    for pod in pods[:most]:
        if not pod.started:
            _note(f"{pod.name} has not started: {pod.state}{f': {pod.trouble}' if pod.trouble else ''}")


def _read(cluster: Cluster, pods: Sequence[Pod], window: LogWindow, options: argparse.Namespace) -> int:
    from herd.kube.log_following import read_logs  # noqa: PLC0415

    started = [pod for pod in pods if pod.started]
    failed = _print(read_logs(cluster, started, window), options)
    return 1 if failed == len(started) else 0


def _follow(cluster: Cluster, find: Callable[[], list[Pod]], window: LogWindow, options: argparse.Namespace) -> int:
    from herd.kube.log_following import Follower  # noqa: PLC0415

    follower = Follower(cluster, find, window, options.most_pods)
    try:
        _print(follower.lines(), options)
    except KeyboardInterrupt:  # how a look at a log ends
        pass
    finally:
        follower.close()
    return 0


def _print(lines: Iterable[Said], options: argparse.Namespace) -> int:
    """Print lines to stdout and notes to stderr; returns the number of notes."""
    notes = 0
    for said in lines:
        if said.is_note:
            notes += 1
            _note(f"{said.pod}: {said.text}" if said.pod else said.text)
        else:
            print(said.text if options.no_prefix else f"{said.pod} | {said.text}", flush=options.follow)
    return notes


def _note(text: str) -> None:
    print(f"herd: {text}", file=sys.stderr, flush=True)
