"""Reads the endpoint of another process: metrics for the live view, probes for the supervisor."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from prometheus_client.parser import text_string_to_metric_families

if TYPE_CHECKING:
    from collections.abc import Iterable

    from herd.telemetry.metrics import Metric

MAX_EXPOSITION_BYTES = 8 << 20
"""Size limit of a page. A learner with 57 tasks exports about 40 kB."""

Labels = tuple[tuple[str, str], ...]
Samples = dict[tuple[str, Labels], float]

# Processes of a run are not reached through a proxy that the environment may name.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class ScrapeError(OSError):
    """The endpoint did not answer with metrics; one line that names the address."""


def scrape(url: str, timeout: float = 2.0, metrics: Iterable[Metric] = ()) -> Samples:
    """Return the samples at ``url`` (``http://host:port/metrics``), by name and sorted (label, value) pairs.

    ``timeout``: seconds of silence. ``metrics``: only these are read; empty: all. Counters carry their ``_total`` names, histograms come
    as ``_bucket``, ``_sum`` and ``_count``. Raises ``ScrapeError``.
    """
    query = urlencode([("name[]", metric.name) for metric in metrics])
    status, body = _get(f"{url}?{query}" if query else url, timeout)
    if status != http.client.OK:
        raise ScrapeError(f"{url} answered {status}")
    return parse(body, url)


def parse(body: bytes, source: str) -> Samples:
    """Return every sample of a /metrics page from ``source``, as in ``scrape``. Raises ``ScrapeError``."""
    try:
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): float(sample.value)
            for family in text_string_to_metric_families(body.decode())
            for sample in family.samples
        }
    except (ValueError, IndexError, KeyError) as error:
        raise ScrapeError(f"{source} did not answer with metrics: {error}") from error


def total(samples: Samples, name: str, **labels: str) -> float:
    """Return the sum of the samples with this name whose labels include ``labels``; 0 if there are none."""
    wanted = set(labels.items())
    return sum(value for (sample, pairs), value in samples.items() if sample == name and wanted <= set(pairs))


def answer(url: str, timeout: float = 2.0) -> tuple[bool, str]:
    """Return whether ``url`` (``/healthz`` or ``/readyz``) answers 200, and its line. Raises ``ScrapeError`` if it does not answer."""
    status, body = _get(url, timeout)
    return status == http.client.OK, body.decode(errors="replace").strip()


def page(url: str, timeout: float = 2.0) -> str | None:
    """Return the line of ``url`` if it answers 200; None if it answers anything else, or does not answer."""
    with suppress(ScrapeError):
        is_ok, line = answer(url, timeout)
        return line if is_ok else None
    return None


def _get(url: str, timeout: float) -> tuple[int, bytes]:
    if not url.startswith(("http://", "https://")):
        raise ScrapeError(f"{url} is not an http address")
    try:
        with _opener.open(url, timeout=timeout) as response:
            body: bytes = response.read(MAX_EXPOSITION_BYTES + 1)
            status: int = response.status
    except urllib.error.HTTPError as error:
        with error, suppress(OSError, http.client.HTTPException):
            return error.code, error.read(MAX_EXPOSITION_BYTES)
        return error.code, b""
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise ScrapeError(f"{url} does not answer: {reason or type(error).__name__}") from error
    if len(body) > MAX_EXPOSITION_BYTES:
        raise ScrapeError(f"{url} answered more than {MAX_EXPOSITION_BYTES} bytes")
    return status, body
