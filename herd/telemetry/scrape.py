"""Reading another process's endpoint: its metrics for the live view, its probes for the supervisor."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

MAX_EXPOSITION_BYTES = 8 << 20
"""A learner with 57 tasks exports some 40 kB; a page of this size is not ours."""

Labels = tuple[tuple[str, str], ...]
Samples = dict[tuple[str, Labels], float]

# A proxy of the environment is for the world outside, not for the processes of a run.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class ScrapeError(OSError):
    """The endpoint did not answer, or not with metrics; one line that names the address."""


def scrape(url: str, timeout: float = 2.0) -> Samples:
    """Every sample at ``url`` (``http://host:port/metrics``), by name and sorted (label, value) pairs.

    ``timeout``: seconds of silence. Counters carry their ``_total`` names, histograms come as ``_bucket``, ``_sum`` and ``_count``.
    Raises ``ScrapeError``.
    """
    status, body = _get(url, timeout)
    if status != http.client.OK:
        raise ScrapeError(f"{url} answered {status}")
    try:
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): float(sample.value)
            for family in text_string_to_metric_families(body.decode())
            for sample in family.samples
        }
    except (ValueError, IndexError, KeyError) as error:
        raise ScrapeError(f"{url} did not answer with metrics: {error}") from error


def total(samples: Samples, name: str, **labels: str) -> float:
    """Sum of the samples of this name whose labels include ``labels``; 0 where there is none."""
    wanted = set(labels.items())
    return sum(value for (sample, pairs), value in samples.items() if sample == name and wanted <= set(pairs))


def probe(url: str, timeout: float = 2.0) -> bool:
    """Whether ``url`` (``/healthz`` or ``/readyz``) answers 200; False also when nothing answers."""
    try:
        status, _ = _get(url, timeout)
    except ScrapeError:
        return False
    return status == http.client.OK


def page(url: str, timeout: float = 2.0) -> str | None:
    """What ``url`` answers where it answers 200; None where it answers anything else, or nothing does."""
    try:
        status, body = _get(url, timeout)
    except ScrapeError:
        return None
    return body.decode(errors="replace") if status == http.client.OK else None


def _get(url: str, timeout: float) -> tuple[int, bytes]:
    if not url.startswith(("http://", "https://")):
        raise ScrapeError(f"{url} is not an http address")
    try:
        with _opener.open(url, timeout=timeout) as response:
            body: bytes = response.read(MAX_EXPOSITION_BYTES + 1)
            status: int = response.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code, b""
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise ScrapeError(f"{url} does not answer: {reason or type(error).__name__}") from error
    if len(body) > MAX_EXPOSITION_BYTES:
        raise ScrapeError(f"{url} answered more than {MAX_EXPOSITION_BYTES} bytes")
    return status, body
