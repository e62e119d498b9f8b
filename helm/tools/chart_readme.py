"""Generates the chart's README.md from values.yaml: ``python -m helm.tools.chart_readme > helm/herd/README.md``."""

from __future__ import annotations

import json
import sys
from itertools import groupby

import yaml

from helm.tools.values_schema import CHART, Value, read_values

_HEAD = """# The Herd chart

Generated from `values.yaml` by `python -m helm.tools.chart_readme > helm/herd/README.md`; do not edit by hand.

{description} Chart {version}, program {app_version}, Kubernetes {kubernetes}, Helm 3.17 and 4.

    helm install herd helm/herd --set-file experiment=experiments/breakout.yaml --set image.registry=registry.example.org/rl
    helm test herd

| object | what it runs |
| --- | --- |
| Deployment `RELEASE-herd-actor` | actors |
| Deployment `RELEASE-herd-evaluator` | the evaluator, if the experiment has `evaluation.interval_seconds` |
| StatefulSet `RELEASE-herd-learner` | one pod per learner shard, or per `learner.shardsPerPod` shards |
| StatefulSet `RELEASE-herd-paramserver` | the parameter server's root |
| StatefulSet `RELEASE-herd-paramserver-replica` | replicas of the parameter server, if there are any |
| StatefulSet `RELEASE-herd-bandit` | the bandit, if the experiment has one |
| StatefulSet `RELEASE-herd-replay` | the replay service, if the experiment has one |
| StatefulSet `RELEASE-herd-population` | the population controller, if the experiment has one |
| Deployment `RELEASE-herd-inference` | the inference service, if the experiment has `actor.inference: remote` |
| CronJob `RELEASE-herd-run-end` | removes what a finished run no longer needs, if the experiment has a `stop` |

[docs/kubernetes.md](../../docs/kubernetes.md) explains installation, scaling, keys, upgrades and monitoring. `ci/` contains values for
usual cases, which the tests render and check. If a release's name contains `herd`, its objects are named RELEASE instead of RELEASE-herd.

## Values
"""


def chart_readme() -> str:
    """Return the README: every value with its default and reason, by section."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    head = _HEAD.format(
        description=chart["description"], version=chart["version"], app_version=chart["appVersion"], kubernetes=chart["kubeVersion"]
    )
    parts = [head]
    for section, group in groupby(read_values(), key=lambda value: value.path[0] if value.is_section or len(value.path) > 1 else ""):
        values = list(group)
        title = f"### {section}\n\n{values[0].comment}\n" if section else ""
        rows = [_row(value) for value in values if not value.is_section]
        parts.append("\n".join([title, "| value | default | why |", "| --- | --- | --- |", *rows]) + "\n")
    return "\n".join(parts)


def _row(value: Value) -> str:
    return f"| `{'.'.join(value.path)}` | `{json.dumps(value.default)}` | {value.comment.replace('|', chr(92) + '|')} |"


if __name__ == "__main__":
    sys.stdout.write(chart_readme())
