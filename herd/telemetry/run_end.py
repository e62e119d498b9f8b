"""``python -m herd.telemetry.run_end``: removes the workloads of a release that a finished run no longer needs, and so frees their nodes.

The chart's CronJob calls it every few minutes. It keeps nothing in mind: each call looks at the learners, and at most deletes. An agent's
learner is removed when all of its shards report that the run is over. Everything else goes with the last agent, and before its learner, so
that a call that is cut off is completed by the next one. Deleting, unlike scaling to zero, changes no field of which Helm is the owner:
the next upgrade creates again what is missing, and the run continues from its checkpoint.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import ssl
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from herd.telemetry.scrape import page
from herd.telemetry.telemetry import COPY_IS_INCOMPLETE, RUN_IS_OVER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where Kubernetes mounts the credentials of a pod."""
TIMEOUT_SECONDS = 10.0
"""Longest silence of the API server, which answers such requests within milliseconds."""


class ApiError(Exception):
    """The API server refused a request or did not answer; one line."""


class Workloads(NamedTuple):
    """The Deployments and StatefulSets of one namespace. A workload is named ``statefulsets/herd-learner``."""

    address: str
    """Such as ``https://10.0.0.1:443/apis/apps/v1/namespaces/rl``."""
    token: str
    trusted: ssl.SSLContext | None = None

    def read(self, workload: str) -> dict[str, Any] | None:
        """Return the object; None if there is none. Raises `ApiError`."""
        status, body = self._request("GET", workload)
        if status == http.client.NOT_FOUND:
            return None
        try:
            found: dict[str, Any] = json.loads(body)
        except ValueError as error:
            raise ApiError(f"{self.address} does not answer like a Kubernetes API server") from error
        return found

    def delete(self, workload: str, version: str | None = None) -> bool:
        """Delete it with its pods. Return whether it was there, unchanged since ``version`` if that is given. Raises `ApiError`."""
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if version is not None:
            options["preconditions"] = {"resourceVersion": version}
        status, _ = self._request("DELETE", workload, json.dumps(options).encode())
        return status not in {http.client.NOT_FOUND, http.client.CONFLICT}

    def _request(self, method: str, workload: str, body: bytes | None = None) -> tuple[int, bytes]:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json", "Accept": "application/json"}
        request = urllib.request.Request(f"{self.address}/{workload}", body, headers, method=method)  # noqa: S310  the scheme is the chart's
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=self.trusted))
        try:
            with opener.open(request, timeout=TIMEOUT_SECONDS) as response:
                return response.status, response.read()
        except urllib.error.HTTPError as error:
            with error:
                if error.code in {http.client.NOT_FOUND, http.client.CONFLICT}:
                    return error.code, b""
                raise ApiError(f"the API server answered {error.code} to {method} {workload}: {error.reason}") from error
        except (OSError, http.client.HTTPException) as error:
            raise ApiError(f"the API server does not answer: {error}") from error


def own_workloads(environ: Mapping[str, str] = os.environ, account: Path = ACCOUNT) -> Workloads:
    """Return the workloads of this pod's namespace. Raises `ApiError` outside a pod with a service account's token."""
    try:
        host, port = environ["KUBERNETES_SERVICE_HOST"], environ["KUBERNETES_SERVICE_PORT"]
        namespace, token = ((account / name).read_text().strip() for name in ("namespace", "token"))
        trusted = ssl.create_default_context(cafile=str(account / "ca.crt"))
    except (KeyError, OSError) as error:
        raise ApiError(f"not in a pod with a service account's token: {error}") from error
    host = f"[{host}]" if ":" in host else host
    return Workloads(f"https://{host}:{port}/apis/apps/v1/namespaces/{namespace}", token, trusted)


def remove_finished(
    workloads: Workloads,
    learners: Mapping[str, Sequence[str]],
    others: Sequence[str],
    *,
    keeps_learners: bool,
    needs_copy: bool = False,
    readiness: Callable[[str], str | None] = page,
) -> list[str]:
    """Remove what is no longer needed.

    Args:
        workloads: of the release's namespace.
        learners: by agent, the name of its StatefulSet and the addresses of the metrics of its shards. One that does not exist has ended.
        others: workloads to remove when the run is over for all agents.
        keeps_learners: leave the learners, whose files are only in their pods.
        needs_copy: leave the learners whose copy in object storage is incomplete, because nothing else outlives their pods.
        readiness: returns the line of an address if it answers 200.

    Returns:
        the workloads that were removed.

    Raises:
        ApiError: see `Workloads`.

    """
    found = {name: each for name in learners if (each := workloads.read(f"statefulsets/{name}")) is not None}
    lines = {name: [readiness(f"{url}/readyz") or "" for url in learners[name]] for name, each in found.items() if _is_settled(each)}
    over = [name for name, of_shards in lines.items() if all(RUN_IS_OVER in line for line in of_shards)]
    removed = []
    if found and len(over) == len(found):
        removed += [workload for workload in others if workloads.delete(workload)]
    if not keeps_learners:
        freed = [name for name in over if not (needs_copy and any(COPY_IS_INCOMPLETE in line for line in lines[name]))]
        versions = {f"statefulsets/{name}": found[name]["metadata"]["resourceVersion"] for name in freed}
        removed += [workload for workload, version in versions.items() if workloads.delete(workload, version)]
    return removed


def _is_settled(learner: Mapping[str, Any]) -> bool:
    """Return whether its pods are those of its newest template. Before, a pod of the old one may report the end of the old run."""
    status = learner.get("status") or {}
    is_seen = status.get("observedGeneration") == learner["metadata"].get("generation")
    return is_seen and status.get("currentRevision") == status.get("updateRevision")


def main(argv: Sequence[str] | None = None) -> int:
    """Look once; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m herd.telemetry.run_end", description="Removes what a finished run no longer needs.")
    learner_help = "StatefulSet of an agent and the metrics addresses of its shards, separated by commas; repeat"
    parser.add_argument("--learner", action="append", required=True, metavar="NAME=URL,URL", help=learner_help)
    parser.add_argument("--remove", action="append", default=[], metavar="KIND/NAME", help="deployments/herd-actor; repeat")
    parser.add_argument("--keep-learners", action="store_true", help="leave the learners, whose files are only in their pods")
    parser.add_argument("--needs-copy", action="store_true", help="leave the learners whose copy in object storage is incomplete")
    options = parser.parse_args(argv)
    learners = {name: urls.split(",") for name, _, urls in (word.partition("=") for word in options.learner)}
    try:
        rules = {"keeps_learners": options.keep_learners, "needs_copy": options.needs_copy}
        removed = remove_finished(own_workloads(), learners, options.remove, **rules)
    except ApiError as error:
        print(f"run_end: {error}", file=sys.stderr)
        return 1
    print(f"{RUN_IS_OVER}: removed {', '.join(removed)}" if removed else "nothing to remove")
    return 0


if __name__ == "__main__":
    sys.exit(main())
