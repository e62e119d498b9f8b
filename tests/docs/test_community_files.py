"""Files for contributors and the forge: workflows and citation match their schemas, and repeated facts agree."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml
from check_jsonschema import main as check
from click.testing import CliRunner

from herd.topology import SERVICES

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
TEMPLATES = ROOT / ".github" / "ISSUE_TEMPLATE"
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def workflow(name: str) -> Any:
    return yaml.safe_load((ROOT / ".github" / "workflows" / name).read_text(encoding="utf-8"))


SCHEMAS = {
    "vendor.github-workflows": WORKFLOWS,
    "vendor.dependabot": [ROOT / ".github" / "dependabot.yml"],
    "vendor.citation-file-format": [ROOT / "CITATION.cff"],
    "vendor.github-issue-config": [TEMPLATES / "config.yml"],
    "vendor.github-issue-forms": sorted({*TEMPLATES.glob("*.yml")} - {TEMPLATES / "config.yml"}),
}


@pytest.mark.parametrize(("schema", "path"), [(schema, path) for schema, paths in SCHEMAS.items() for path in paths])
def test_files_match_their_schemas(schema: str, path: Path) -> None:
    done = CliRunner().invoke(check, ["--builtin-schema", schema, str(path)])
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_use_pinned_actions_and_read_permissions(path: Path) -> None:
    uses = re.findall(r"uses: (.+)", path.read_text(encoding="utf-8"))
    assert [use for use in uses if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", use)] == []
    content = workflow(path.name)
    assert content["permissions"] == {"contents": "read"}
    steps = [step for job in content["jobs"].values() for step in job["steps"]]
    checkouts = [step for step in steps if step.get("uses", "").startswith("actions/checkout@")]
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_commands_of_workflows_exist(path: Path) -> None:
    steps = [step for job in workflow(path.name)["jobs"].values() for step in job["steps"]]
    commands = "\n".join(step["run"] for step in steps if "run" in step)
    targets = re.findall(r"\bmake ([a-z-]+)", commands)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert [target for target in targets if not re.search(rf"^{target}:", makefile, re.MULTILINE)] == []
    modules = [name for name in re.findall(r"python3? -m ([\w.]+)", commands) if name != "pip"]
    assert [name for name in modules if find_spec(name) is None] == []
    assert [file for file in re.findall(r"(?:^|\s)(\.ci/\w+)", commands) if not (ROOT / file).exists()] == []
    assert targets or modules


def test_the_nightly_cluster_is_described_in_variables_that_the_suite_reads() -> None:
    *_, suite = workflow("nightly.yml")["jobs"]["cluster"]["steps"]
    read = (ROOT / "tests" / "cluster" / "cluster_settings.py").read_text()
    assert suite["run"].endswith("make test-cluster")
    assert [name for name in suite["env"] if f'"{name}"' not in read] == []


def test_every_marker_of_the_nightly_runs_selects_tests() -> None:
    tests = "\n".join(file.read_text(encoding="utf-8") for file in (ROOT / "tests").rglob("test_*.py"))
    markers = workflow("nightly.yml")["jobs"]["pytest"]["strategy"]["matrix"]["marker"]
    assert [marker for marker in markers if f"pytest.mark.{marker}" not in tests] == []


def test_the_citation_is_of_this_version() -> None:
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["version"] == PROJECT["version"]


def test_the_test_matrix_has_the_declared_versions() -> None:
    matrix = workflow("check.yml")["jobs"]["versions"]["strategy"]["matrix"]
    promised = {match[1] for line in PROJECT["classifiers"] if (match := re.search(r"Python :: (3\.\d+)$", line))}
    assert set(matrix["python"]) == promised
    pinned = re.search(r"^torch==(\d+\.\d+)", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    [lowest] = [re.search(r"torch>=([\d.]+)", need)[1] for need in PROJECT["optional-dependencies"]["learner"] if need.startswith("torch")]  # type: ignore[index]
    assert pinned is not None
    assert {lowest, pinned[1]} <= set(matrix["torch"])


def test_the_release_workflow_builds_every_service(capsys: pytest.CaptureFixture[str]) -> None:
    jobs = workflow("release.yml")["jobs"]
    assert (jobs["services"]["needs"], jobs["images"]["needs"]) == ("test", "services")  # nothing is signed that was not tested
    assert jobs["images"]["strategy"]["matrix"]["service"] == "${{ fromJSON(needs.services.outputs.names) }}"
    exec(shlex.split(jobs["services"]["steps"][-1]["run"])[2])
    assert json.loads(capsys.readouterr().out.removeprefix("names=")) == [service.name for service in SERVICES]


def test_the_changelog_starts_with_unreleased_and_dates_the_rest() -> None:
    titles = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert titles[0] == "Unreleased"
    assert all(re.fullmatch(r"\d+\.\d+\.\d+ - \d{4}-\d{2}-\d{2}", title) for title in titles[1:])
    assert titles[1].startswith(PROJECT["version"])
