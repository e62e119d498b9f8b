"""Options of all commands that access a cluster."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from herd.cli.errors import CommandError
from herd.cli.preflight import require

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from herd.kube.cluster import Cluster

CLUSTER_OPTIONS = ("namespace", "context", "kubeconfig")


def add_cluster_options(parser: argparse.ArgumentParser) -> None:
    """Add -n/--namespace, --context and --kubeconfig."""
    parser.add_argument("-n", "--namespace", metavar="N", help="namespace; default: that of the context")
    parser.add_argument("--context", metavar="C", help="context of the kubeconfig; default: its current context")
    parser.add_argument(
        "--kubeconfig", type=Path, metavar="FILE", help="default: KUBECONFIG, then ~/.kube/config, then the service account of this pod"
    )


@contextmanager
def cluster_of(options: argparse.Namespace) -> Iterator[Cluster]:
    """Open the cluster that the options name, and report its errors in one line.

    Raises:
        CommandError: the package kubernetes is not installed, or an error of ``herd.kube.errors``.

    """
    require("kubernetes")
    from herd.kube.cluster import open_cluster  # noqa: PLC0415  loads kubernetes; not needed for --help
    from herd.kube.errors import KubeError  # noqa: PLC0415
    from herd.kube.kubeconfig import Access  # noqa: PLC0415

    try:
        cluster = open_cluster(Access(options.kubeconfig, options.context, options.namespace), os.environ)
        try:
            yield cluster
        finally:
            cluster.close()
    except KubeError as error:
        raise CommandError(str(error)) from error
