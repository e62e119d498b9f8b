"""Finds cluster, credentials and namespace: from --kubeconfig, KUBECONFIG, ~/.kube/config, or this pod's service account, in that order."""

from __future__ import annotations

import logging
import os
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import urllib3
import yaml
from kubernetes.client import Configuration
from kubernetes.config import ConfigException, list_kube_config_contexts, load_kube_config
from kubernetes.config.incluster_config import InClusterConfigLoader

from herd.kube.errors import KubeError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where Kubernetes mounts a pod's own credentials."""
_DEFAULT_FILE = Path("~/.kube/config")
_DEFAULT_NAMESPACE = "default"
_MOST_NAMED = 10
"""Largest number of contexts in a message."""


@dataclass(frozen=True, slots=True)
class Access:
    """The user's options about the cluster; None: as in the kubeconfig."""

    kubeconfig: Path | None = None
    context: str | None = None
    namespace: str | None = None


@dataclass(frozen=True, slots=True)
class Connection:
    """A cluster and the credentials for it."""

    configuration: Configuration
    namespace: str
    source: str
    """``context NAME`` or ``this pod's service account``, for messages."""


def find_connection(access: Access, environ: Mapping[str, str], service_account: Path = SERVICE_ACCOUNT) -> Connection:
    """Read how to access the cluster; nothing is sent yet.

    Raises:
        KubeError: there is no valid kubeconfig, the context is unknown, or credentials are not available.

    """
    files = _files(access, environ)
    if files:
        return _from_files(files, access)
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return _from_pod(access, environ, service_account)
    raise KubeError(
        f"no cluster: {_DEFAULT_FILE} does not exist, KUBECONFIG is not set, and this is not a pod; name a file with --kubeconfig"
    )


def _files(access: Access, environ: Mapping[str, str]) -> list[Path]:
    """Return the files to merge, in order; none if there is no kubeconfig. As in kubectl, KUBECONFIG may list missing files."""
    if access.kubeconfig is not None:
        if not access.kubeconfig.is_file():
            raise KubeError(f"{access.kubeconfig}: no such file")
        return [access.kubeconfig]
    if listed := environ.get("KUBECONFIG", ""):
        named = [Path(word).expanduser() for word in listed.split(os.pathsep) if word]
        files = [path for path in named if path.is_file()]
        if not files:
            raise KubeError(f"KUBECONFIG={listed}: no such file")
        return files
    default = _DEFAULT_FILE.expanduser()
    return [default] if default.is_file() else []


def _from_files(files: list[Path], access: Access) -> Connection:
    joined = os.pathsep.join(map(str, files))
    configuration = Configuration()
    try:
        contexts, current = list_kube_config_contexts(joined)  # type: ignore[no-untyped-call]
    except ConfigException as error:
        if "current-context" not in str(error):
            raise KubeError(f"{joined}: not a kubeconfig: {_first_line(error)}") from error
        contexts, current = _without_current(joined), None
    except (yaml.YAMLError, OSError, ValueError, TypeError, AttributeError, KeyError) as error:
        raise KubeError(f"{joined}: not a kubeconfig: {_first_line(error)}") from error
    chosen = _choose(contexts, current, access.context, joined)
    with _no_chatter(f"the credentials of context {chosen['name']} are not available"):
        try:
            load_kube_config(  # type: ignore[no-untyped-call]
                config_file=joined, context=chosen["name"], client_configuration=configuration
            )
        except (ConfigException, OSError, ValueError, TypeError, AttributeError, KeyError) as error:
            raise KubeError(f"{joined}: context {chosen['name']}: {_first_line(error)}") from error
    if configuration.host == Configuration().host:
        raise KubeError(f"{joined}: the cluster of context {chosen['name']} has no server")
    if not configuration.verify_ssl:  # set in the kubeconfig; suppress a warning at every request
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    namespace = access.namespace or (chosen.get("context") or {}).get("namespace") or _DEFAULT_NAMESPACE
    return Connection(configuration, namespace, f"context {chosen['name']}")


def _without_current(joined: str) -> list[dict[str, Any]]:
    """Return the contexts of files without a current context."""
    contexts: list[dict[str, Any]] = []
    for file in joined.split(os.pathsep):
        content = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
        contexts += content.get("contexts") or []
    return contexts


def _choose(contexts: list[dict[str, Any]], current: dict[str, Any] | None, wanted: str | None, joined: str) -> dict[str, Any]:
    if not all(isinstance(context, dict) and "name" in context for context in contexts):
        raise KubeError(f"{joined}: not a kubeconfig: a context without a name")
    names = [str(context["name"]) for context in contexts]
    there_are = ", ".join(names[:_MOST_NAMED]) + (f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else "")
    if wanted is not None:
        for context in contexts:
            if context["name"] == wanted:
                return context
        raise KubeError(f"{joined}: no context {wanted}; available are: {there_are or 'none'}")
    if current is None:
        raise KubeError(f"{joined}: has no current context; choose one with --context: {there_are or 'there is none'}")
    return current


def _from_pod(access: Access, environ: Mapping[str, str], service_account: Path) -> Connection:
    if access.context is not None:
        raise KubeError("--context needs a kubeconfig; this pod's service account has none")
    configuration = Configuration()
    loader = InClusterConfigLoader(  # type: ignore[no-untyped-call]
        str(service_account / "token"), str(service_account / "ca.crt"), environ=dict(environ)
    )
    try:
        loader.load_and_set(configuration)  # type: ignore[no-untyped-call]
    except (ConfigException, OSError) as error:
        raise KubeError(f"this pod has no usable service account: {_first_line(error)}") from error
    try:
        own = (service_account / "namespace").read_text(encoding="utf-8").strip()
    except OSError:
        own = ""
    return Connection(configuration, access.namespace or own or _DEFAULT_NAMESPACE, "this pod's service account")


@contextmanager
def _no_chatter(problem: str) -> Iterator[None]:
    """Raise an error if the client logs that credentials are not available, because it would continue without them."""
    said = _Collector()
    root = logging.getLogger()
    root.addHandler(said)
    try:
        yield
    finally:
        root.removeHandler(said)
    if said.lines:
        raise KubeError(f"{problem}: {said.lines[0]}")


class _Collector(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == "root":
            self.lines.append(_first_line(record.getMessage()))


def _first_line(problem: object) -> str:
    lines = str(problem).strip().splitlines()
    return lines[0].strip() if lines else type(problem).__name__
