"""Runs checkov over everything that the chart renders: ``python -m helm.tools.chart_security``. Fails unless all findings are accepted.

checkov has its own environment, which `make helm-security` creates and --checkov names. Without an account it reports no severities, so
``ACCEPTED`` lists checks that its makers rate low, each with our reason.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from helm.tools.fetch_tools import helm_program
from helm.tools.values_schema import CHART

ACCEPTED = {
    "CKV_K8S_43": "low: users build the images, so the chart cannot know their digests; image.digest sets them",
    "CKV_K8S_15": "low: with Always, thousands of actors would ask the registry at once; image.pullPolicy sets it",
    "CKV_K8S_8": "low: only the pod of helm test, which ends by itself and has a timeout",
    "CKV_K8S_9": "low: only the pod of helm test, which accepts no connections",
}
ONLY_TEST_POD = frozenset({"CKV_K8S_8", "CKV_K8S_9"})


def render_all(folder: Path) -> None:
    """Render every file of ci/ with Helm 4."""
    for values in sorted((CHART / "ci").glob("*-values.yaml")):
        command = [str(helm_program("4")), "template", "herd", str(CHART), "--namespace", "rl", "--values", str(values)]
        rendered = subprocess.run(command, capture_output=True, text=True, check=True)
        (folder / values.name).write_text(rendered.stdout)


def findings(checkov: str, folder: Path) -> tuple[int, list[tuple[str, str, str]]]:
    """Return the number of passed checks, and (check, its name, resource) of each failed one.

    Raises:
        RuntimeError: checkov checked nothing, or could not read a file.
    """
    command = [checkov, "--framework", "kubernetes", "--skip-download", "--quiet", "--output", "json", "--directory", str(folder)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    report = json.loads(result.stdout)
    summary = report["summary"]
    if not summary["passed"] or summary["parsing_errors"]:
        raise RuntimeError(f"checkov: {summary}; {result.stderr[-500:]}")
    failed = report["results"]["failed_checks"]
    return summary["passed"], sorted({(each["check_id"], each["check_name"], each["resource"]) for each in failed})


def is_accepted(check: str, resource: str) -> bool:
    """Return whether a finding is accepted above."""
    return check in ACCEPTED and (check not in ONLY_TEST_POD or resource.endswith("-test"))


def main() -> int:
    """Render, check and print; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m helm.tools.chart_security", description="Runs checkov over everything that the chart renders."
    )
    parser.add_argument("--checkov", default="checkov", help="the program")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        render_all(Path(folder))
        num_passed, failed = findings(options.checkov, Path(folder))
    unaccepted = [finding for finding in failed if not is_accepted(finding[0], finding[2])]
    print(f"{num_passed} checks passed, {len(unaccepted)} findings above low; accepted:")
    for check in sorted({check for check, _, _ in failed} & set(ACCEPTED)):
        print(f"  {check} {ACCEPTED[check]}")
    for check, name, resource in unaccepted:
        print(f"{resource}: {check}: {name}")
    return 1 if unaccepted else 0


if __name__ == "__main__":
    sys.exit(main())
