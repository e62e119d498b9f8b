"""Metrics of the catalogue, the limit on the number of series, and the three pages over HTTP."""

import errno
import re
import socket
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from herd.protocols import catalogue
from herd.protocols.bandit import metrics as bandit_metrics
from herd.protocols.catalogue import render_reference
from herd.protocols.unrolls import metrics as unroll_metrics
from herd.telemetry import MetricsEndpointError, Telemetry, metrics
from herd.telemetry import training as training_metrics
from herd.telemetry.http_endpoint import HttpEndpoint
from herd.telemetry.logs import configure_logging
from herd.telemetry.scrape import ScrapeError, page, scrape, total
from tests.clock import Clock


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def learner(clock):
    telemetry = Telemetry("learner", "test-run", alive_seconds=30, clock=clock)
    yield telemetry
    telemetry.close()


def samples_of(telemetry):
    return [line for line in telemetry.exposition().decode().splitlines() if not line.startswith("#")]


def fetch(port, page):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{page}", timeout=5) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_every_catalogue_entry_follows_the_conventions():
    assert len({metric.name for metric in catalogue.CATALOGUE}) == len(catalogue.CATALOGUE)
    bounded = {"agent", "layer", "name", "setting", "statistic", "task", "term", "tile"}
    for metric in catalogue.CATALOGUE:
        assert re.fullmatch(r"herd_[a-z0-9_]+", metric.name), metric.name
        assert isinstance(metric, metrics.CounterMetric) == metric.name.endswith("_total"), metric.name
        assert metric.unit, metric.name
        assert metric.help.endswith("."), metric.name
        assert not set(metric.labels) & {"pod", "actor", "actor_index", "host", "job", "instance", "namespace", "release", "component"}, (
            metric.name
        )
        assert "task" not in metric.labels or metric.services in {("learner",), ("bandit",), ("evaluator",)}, metric.name
        assert metric.values or set(metric.labels) <= bounded or metric is metrics.PROCESS_INFO, metric.name
        if metric.values:
            assert len(metric.labels) == 1, metric.name
        if metric.unit in {"seconds", "bytes"}:
            assert f"_{metric.unit}" in metric.name, metric.name


def test_the_reference_page_is_up_to_date():
    page = Path(__file__).parents[2] / "docs" / "metrics.md"
    assert page.read_text() == render_reference(), "run python -m herd.protocols.catalogue > docs/metrics.md"
    for metric in catalogue.CATALOGUE:
        assert render_reference().count(f"| `{metric.name}` |") == 1


def test_a_labelled_counter_is_resolved_once_and_counts(learner):
    stale = learner.counter(unroll_metrics.UNROLLS_DROPPED, reason="stale")
    stale.inc(3)
    assert learner.counter(unroll_metrics.UNROLLS_DROPPED, reason="stale") is stale
    lines = samples_of(learner)
    assert 'herd_learner_unrolls_dropped_total{reason="stale"} 3.0' in lines
    assert 'herd_learner_unrolls_dropped_total{reason="malformed"} 0.0' in lines, "known reasons must exist before their first event"
    assert not any("_created" in line for line in lines)


def test_an_unknown_reason_is_counted_as_other(learner):
    learner.counter(metrics.MALFORMED_MESSAGES, reason="header")
    before = len(samples_of(learner))
    for n in range(100):
        learner.counter(metrics.MALFORMED_MESSAGES, reason=f"evil {n}").inc()
    assert len(samples_of(learner)) == before
    assert 'herd_wire_malformed_messages_total{reason="other"} 100.0' in samples_of(learner)


def test_invalid_requests_for_metrics_are_errors(learner):
    with pytest.raises(ValueError, match="not a metric of the learner"):
        learner.counter(unroll_metrics.ACTOR_ENV_FRAMES)
    with pytest.raises(ValueError, match="takes the labels"):
        learner.counter(unroll_metrics.UNROLLS_DROPPED)
    with pytest.raises(ValueError, match="takes the labels"):
        learner.counter(unroll_metrics.UNROLLS_REPLAYED, reason="stale")
    with pytest.raises(ValueError, match="phase must be one of"):
        learner.counter(training_metrics.UPDATE_PHASE, phase="coffee")
    with pytest.raises(TypeError, match="is a Gauge"):
        learner.counter(unroll_metrics.QUEUE_DEPTH)


def test_functions_of_metrics_are_called_at_each_scrape(learner):
    received = {"unrolls": 10, "weights": 1}
    learner.read(metrics.BYTES_IN, lambda: received["unrolls"], stream="unrolls")
    learner.read(metrics.BYTES_IN, lambda: received["weights"], stream="weights")
    assert 'herd_wire_received_bytes_total{stream="unrolls"} 10.0' in samples_of(learner)
    received["unrolls"] = 25
    assert 'herd_wire_received_bytes_total{stream="unrolls"} 25.0' in samples_of(learner)
    assert 'herd_wire_received_bytes_total{stream="weights"} 1.0' in samples_of(learner)


def test_the_policy_lag_histogram_has_a_bucket_for_lag_0(learner):
    lag = learner.histogram(unroll_metrics.POLICY_LAG)
    for updates in (0, 0, 1, 300):
        lag.observe(updates)
    lines = samples_of(learner)
    assert 'herd_learner_policy_lag_updates_bucket{le="0.0"} 2.0' in lines
    assert 'herd_learner_policy_lag_updates_bucket{le="256.0"} 3.0' in lines
    assert "herd_learner_policy_lag_updates_sum 301.0" in lines


def test_weights_version_and_age_are_exported(learner, clock):
    assert "herd_weights_age_seconds NaN" in samples_of(learner)
    learner.set_weights_version(7, 1234)
    clock.now += 2.5
    lines = samples_of(learner)
    assert {"herd_weights_lineage 7.0", "herd_weights_updates 1234.0", "herd_weights_age_seconds 2.5"} <= set(lines)


def test_process_metrics_include_memory_cpu_time_and_identity(learner):
    values = dict(line.rsplit(" ", 1) for line in samples_of(learner))
    assert 1e6 < float(values["herd_process_resident_memory_bytes"]) < 1e11
    assert float(values["herd_process_cpu_seconds_total"]) > 0.0
    assert any(key.startswith('herd_process_info{run="test-run",service="learner",version="') for key in values)


def test_healthz_fails_when_the_heartbeat_is_too_old_and_recovers(learner, clock):
    port = learner.serve("127.0.0.1", 0)
    assert fetch(port, "/healthz") == (200, "ok\n")
    clock.now += 30
    assert fetch(port, "/healthz")[0] == 200
    clock.now += 1
    status, text = fetch(port, "/healthz")
    assert status == 503
    assert "silent for 31.0 s" in text
    assert not page(f"http://127.0.0.1:{port}/healthz")
    assert not learner.alive()
    learner.beat()
    assert fetch(port, "/healthz")[0] == 200


def test_readyz_follows_set_ready_and_gives_the_reason(learner):
    port = learner.serve("127.0.0.1", 0)
    assert fetch(port, "/readyz") == (503, "not ready: starting\n")
    learner.set_ready(False, "waiting for the first batch")
    assert fetch(port, "/readyz") == (503, "not ready: waiting for the first batch\n")
    learner.set_ready(True)
    assert fetch(port, "/readyz") == (200, "ok\n")
    learner.set_ready(True, "old weights")
    assert fetch(port, "/readyz") == (200, "ok: old weights\n")
    assert page(f"http://127.0.0.1:{port}/readyz")


def test_unknown_pages_and_methods_are_refused(learner):
    port = learner.serve("127.0.0.1", 0)
    assert fetch(port, "/")[0] == 404
    assert fetch(port, "/metrics?name=x")[0] == 200
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", data=b"x", method="POST")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=5)
    refused.value.close()
    assert refused.value.code == 501


def test_a_port_in_use_is_one_clear_error(learner):
    port = learner.serve("127.0.0.1", 0)
    with pytest.raises(MetricsEndpointError, match=rf"127\.0\.0\.1:{port}.*in use") as refused:
        Telemetry("actor", "run").serve("127.0.0.1", port)
    assert refused.value.errno == errno.EADDRINUSE
    assert "\n" not in str(refused.value)
    with pytest.raises(MetricsEndpointError, match=r"192\.0\.2\.1:9000"):  # an address of another machine
        Telemetry("actor", "run").serve("192.0.2.1", 9000)


def test_close_frees_the_port_and_may_be_repeated(learner):
    port = learner.serve("127.0.0.1", 0)
    with pytest.raises(RuntimeError, match="already serving"):
        learner.serve("127.0.0.1", 0)
    learner.close()
    learner.close()
    with pytest.raises(ScrapeError, match=f"127.0.0.1:{port}"):
        scrape(f"http://127.0.0.1:{port}/metrics", timeout=1)
    assert learner.serve("127.0.0.1", port) == port


def test_scrape_returns_what_was_set(learner):
    learner.gauge(training_metrics.EPISODE_RETURN, task="pong").set(-20.5)
    learner.counter(training_metrics.EPISODES, task="pong").inc(4)
    learner.counter(training_metrics.EPISODES, task="breakout").inc(2)
    port = learner.serve("127.0.0.1", 0)
    samples = scrape(f"http://127.0.0.1:{port}/metrics")
    assert samples["herd_learner_episode_return_mean_100", (("task", "pong"),)] == -20.5
    assert total(samples, "herd_learner_episodes_total") == 6
    assert total(samples, "herd_learner_episodes_total", task="pong") == 4
    assert total(samples, "herd_no_such_metric") == 0


@pytest.mark.parametrize(("page", "match"), [("/readyz", "503"), ("/nothing", "404")])
def test_scraping_another_page_is_one_clear_error(learner, page, match):
    port = learner.serve("127.0.0.1", 0)
    with pytest.raises(ScrapeError, match=match) as refused:
        scrape(f"http://127.0.0.1:{port}{page}")
    assert "\n" not in str(refused.value)


def test_scraping_a_silent_server_times_out(learner):
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(ScrapeError, match="timed out"):
        scrape(f"http://127.0.0.1:{silent.getsockname()[1]}/metrics", timeout=0.05)


@pytest.mark.parametrize("url", ["file:///etc/passwd", "127.0.0.1:9", "http://127.0.0.1:port/metrics"])
def test_scraping_an_invalid_address_is_an_error(url):
    with pytest.raises(ScrapeError):
        scrape(url, timeout=0.2)


def test_a_reading_that_raises_costs_only_its_own_sample_and_is_logged(learner, capsys):
    configure_logging("learner")
    learner.read(unroll_metrics.QUEUE_DEPTH, lambda: 7.0)
    learner.read(unroll_metrics.QUEUE_CAPACITY, lambda: 1 / 0)
    learner.serve("127.0.0.1", 0)
    found = scrape(f"http://127.0.0.1:{learner.port}/metrics")
    assert found[unroll_metrics.QUEUE_DEPTH.name, ()] == 7.0
    assert (unroll_metrics.QUEUE_CAPACITY.name, ()) not in found
    logged = capsys.readouterr().err
    assert unroll_metrics.QUEUE_CAPACITY.name in logged
    assert "ZeroDivisionError" in logged


def test_a_page_that_raises_answers_500_and_is_logged(capsys):
    def broken(_names):
        raise ZeroDivisionError

    configure_logging("learner")
    endpoint = HttpEndpoint("127.0.0.1", 0, {"/broken": broken})
    try:
        assert fetch(endpoint.port, "/broken")[0] == 500
    finally:
        endpoint.close()
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_a_scrape_may_name_the_metrics_that_it_needs(learner):
    learner.counter(training_metrics.LEARNER_ENV_FRAMES)
    learner.counter(training_metrics.EPISODES, task="pong")
    learner.histogram(unroll_metrics.POLICY_LAG)
    learner.serve("127.0.0.1", 0)
    url = f"http://127.0.0.1:{learner.port}/metrics"
    every, wanted = scrape(url), (training_metrics.LEARNER_ENV_FRAMES, unroll_metrics.POLICY_LAG, metrics.PROCESS_RESIDENT_MEMORY)
    some = scrape(url, metrics=wanted)
    assert some.keys() == {key for key in every if key[0].startswith(tuple(metric.name for metric in wanted))}
    assert len(some) > len(wanted)  # the buckets of the histogram, too
    assert scrape(url, metrics=[unroll_metrics.ACTOR_BLOCKED]) == {}  # which a learner does not have


def test_adding_a_reading_copies_none_of_those_before_it():
    telemetry = Telemetry("bandit", "run")
    held = []
    for tile in range(3):
        telemetry.read(bandit_metrics.BANDIT_TILE_VALUE, lambda: 1.0, agent="0", task="pong", tile=str(tile))
        held.append(telemetry._readings._functions[bandit_metrics.BANDIT_TILE_VALUE.name][1])
    assert held[0] is held[1] is held[2]
    assert len([line for line in samples_of(telemetry) if line.startswith(bandit_metrics.BANDIT_TILE_VALUE.name)]) == 3
