"""Requests to the API server, with bounded answers and one-line errors."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import urllib3
from kubernetes.client import ApiClient
from kubernetes.client.exceptions import ApiException, OpenApiException

from herd.kube.errors import KubeError, NotAllowedError, NotFoundError, UnreachableError
from herd.kube.kubeconfig import Access, Connection, find_connection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

CONNECT_SECONDS = 5.0
"""A reachable API server accepts within a round trip; three lost packets take 7 s, one takes 1 s."""
READ_SECONDS = 30.0
"""Longest pause within an answer. A page of 500 pods takes the server part of a second."""
MOST_AT_ONCE = 16
"""Connections to the API server: its default share for one client is some hundred requests."""
_PAGE = 500
"""Objects per page, as in kubectl: a pod has about 8 kB."""
_TABLE_PAGE = 1_000
"""Rows per page: 0.3 kB each, so that thousands of pods need few requests."""
_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
_MOST_PAGES = 200
_MOST_BYTES = 64 << 20
_IN_QUERY = {"label_selector": "labelSelector", "field_selector": "fieldSelector", "_continue": "continue"}
_USER = re.compile(r'User "([^"]*)"')


@dataclass(frozen=True, slots=True)
class Want:
    """The purpose of a request, for error messages: ``list``, ``pods``."""

    verb: str
    resource: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}{f' {self.name}' if self.name else ''}"


class Cluster:
    """One API server and one namespace. Its methods may be called from several threads.

    Every request waits ``CONNECT_SECONDS`` for a connection and ``READ_SECONDS`` for each piece of the answer, and is tried once.
    """

    def __init__(self, connection: Connection) -> None:
        configuration = connection.configuration
        configuration.retries = False  # accepted by urllib3: raise at once, follow no redirects
        configuration.connection_pool_maxsize = MOST_AT_ONCE
        configuration.safe_chars_for_path_param = ":"  # POD:PORT of the proxy
        self.client = ApiClient(configuration)
        self.client.user_agent = "herd"
        self.namespace = connection.namespace
        self.source = connection.source

    @property
    def server(self) -> str:
        """Address of the API server."""
        return str(self.client.configuration.host)

    def close(self) -> None:
        """Close the connections."""
        self.client.close()  # type: ignore[no-untyped-call]

    def read(
        self,
        want: Want,
        request: Callable[..., Any],
        *arguments: Any,
        read_seconds: float = READ_SECONDS,
        most_bytes: int = _MOST_BYTES,
        **options: Any,
    ) -> bytes:
        """Send a request and return the bytes of its answer.

        Raises:
            KubeError: see errors.py; also if the answer has more than ``most_bytes``.

        """
        try:
            response = request(*arguments, _preload_content=False, _request_timeout=(CONNECT_SECONDS, read_seconds), **options)
        except (ApiException, OpenApiException, urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise self._explain(want, error) from error
        assert isinstance(response, urllib3.BaseHTTPResponse)
        try:
            body = response.read(most_bytes + 1)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise self._explain(want, error) from error
        finally:
            response.release_conn()
        if len(body) > most_bytes:
            response.close()
            raise KubeError(f"{self.server}: the answer to {want} has more than {most_bytes} bytes")
        return bytes(body)

    def get(self, want: Want, request: Callable[..., Any], *arguments: Any, **options: Any) -> dict[str, Any]:
        """Send a request and return the JSON object of its answer; raises ``KubeError``."""
        try:
            answer = json.loads(self.read(want, request, *arguments, **options))
        except ValueError as error:
            raise KubeError(f"{self.server} does not answer {want} like a Kubernetes API server") from error
        if not isinstance(answer, dict):
            raise KubeError(f"{self.server} does not answer {want} like a Kubernetes API server")
        return answer

    def items(self, want: Want, request: Callable[..., Any], *arguments: Any, **options: Any) -> list[dict[str, Any]]:
        """List objects, page by page; raises ``KubeError``."""
        found: list[dict[str, Any]] = []
        for page in self._pages(want, request, arguments, options):
            found += [item for item in page.get("items") or [] if isinstance(item, dict)]
        return found

    def tables(self, want: Want, request: Callable[..., Any], **options: Any) -> Iterator[dict[str, Any]]:
        """List the rows that ``kubectl get`` prints, page by page, without the objects; raises ``KubeError``."""
        for page in self._pages(want, request, (), options | {"accept": _TABLE, "includeObject": "None"}, page_size=_TABLE_PAGE):
            if page.get("kind") != "Table":
                raise KubeError(f"{self.server} did not answer {want} with a table")
            yield page

    def at(self, path: str) -> Callable[..., Any]:
        """Return a GET request to a path for the methods above; ``{namespace}`` is replaced by this cluster's.

        The client's own functions load a class for every kind of Kubernetes object, which takes a second and 20 MiB.
        """
        path = path.replace("{namespace}", quote(self.namespace, safe=""))

        def request(*, accept: str = "application/json", **options: Any) -> Any:
            timeout = options.pop("_request_timeout")
            del options["_preload_content"]  # never
            query = [(_IN_QUERY.get(name, name), value) for name, value in options.items()]
            words = self.client.param_serialize(
                "GET", path, query_params=query, header_params={"Accept": accept}, auth_settings=["BearerToken"]
            )
            answer = self.client.call_api(*words, _request_timeout=timeout)
            if answer.status != 200:
                answer.read()  # type: ignore[no-untyped-call]
                raise ApiException.from_response(http_resp=answer, body=None, data=None)
            return answer.response

        return request

    def _pages(
        self, want: Want, request: Callable[..., Any], arguments: tuple[Any, ...], options: Mapping[str, Any], page_size: int = _PAGE
    ) -> Iterator[dict[str, Any]]:
        token: str | None = None
        for _ in range(_MOST_PAGES):
            more = {"_continue": token} if token else {}
            page = self.get(want, request, *arguments, limit=page_size, **more, **options)
            yield page
            token = (page.get("metadata") or {}).get("continue")
            if not token:
                return
        raise KubeError(f"more than {_MOST_PAGES * page_size} {want.resource} in namespace {self.namespace}")

    def _explain(self, want: Want, error: Exception) -> KubeError:
        if isinstance(error, ApiException) and error.status:
            return self._refused(want, int(error.status), error)
        if isinstance(error, ApiException) or _is_tls(error):
            return KubeError(f"no trusted connection to the API server at {self.server}: {_reason(error)}")
        if isinstance(error, ValueError) and not isinstance(error, OSError):
            return KubeError(f"{want}: {_reason(error)}")
        return UnreachableError(f"the API server at {self.server} ({self.source}) does not answer: {_reason(error)}")

    def _refused(self, want: Want, status: int, error: ApiException) -> KubeError:
        message = _status_message(error)
        if status == 401:
            return NotAllowedError(f"{self.server} does not accept the credentials of {self.source}: log in again")
        if status == 403:
            user = _USER.search(message)
            who = f" (user {user[1]})" if user else ""
            return NotAllowedError(f"not allowed to {want} in namespace {self.namespace}{who}: this needs verb {_needs(want)}")
        if status == 404:
            return NotFoundError(f"{want} in namespace {self.namespace}: {message or 'not found'}")
        line = f"the API server at {self.server} answered {status} to {want}{f': {message}' if message else ''}"
        return UnreachableError(line) if status in {429, 500, 502, 503, 504} else KubeError(line)


def open_cluster(access: Access, environ: Mapping[str, str]) -> Cluster:
    """Find the cluster; nothing is sent yet. Raises ``KubeError``."""
    return Cluster(find_connection(access, environ))


def _needs(want: Want) -> str:
    return f'"{want.verb}" on resource "{want.resource}"'


def _status_message(error: ApiException) -> str:
    """Return the API server's message on one line."""
    try:
        message = json.loads(error.body or "").get("message") or ""
    except (ValueError, AttributeError):
        message = str(error.body or error.reason or "")
    return " ".join(str(message).split())[:500]


def _is_tls(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, urllib3.exceptions.SSLError):
            return True
        error = getattr(error, "reason", None) if isinstance(getattr(error, "reason", None), BaseException) else None
    return False


def _reason(error: BaseException) -> str:
    """Return the innermost cause on one line: ``Connection refused`` instead of three names of pools."""
    if isinstance(error, ApiException):
        lines = str(error.reason or "").splitlines()
        return lines[-1] if lines else type(error).__name__
    if isinstance(error, urllib3.exceptions.ReadTimeoutError):
        return f"no answer within {READ_SECONDS:.0f} s"
    if isinstance(error, urllib3.exceptions.ConnectTimeoutError) and not isinstance(error, urllib3.exceptions.NewConnectionError):
        return f"no connection within {CONNECT_SECONDS:.0f} s"
    lines = str(error).strip().splitlines()
    text = lines[0] if lines else type(error).__name__
    return re.sub(r"^\w+\(host='[^']*', port=[^)]*\): ", "", text)
