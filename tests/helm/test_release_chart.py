"""The chart that a release packages, and the workflow that pushes and signs it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from helm.tools.fetch_tools import ENGINES
from helm.tools.release_chart import main
from herd.topology import SERVICE_NAMES
from tests.helm.rendering import CHART, ROOT, container_of, helm, render, workloads

REGISTRY = "registry.example.org/herd"
DIGESTS = {service: "sha256:" + format(number, "064x") for number, service in enumerate(SERVICE_NAMES)}


@pytest.fixture
def digests(tmp_path: Path) -> Path:
    folder = tmp_path / "digests"
    folder.mkdir()
    for service, digest in DIGESTS.items():
        (folder / service).write_text(f"{digest}\n")
    return folder


@pytest.mark.processes
@pytest.mark.parametrize("engine", ENGINES)
def test_a_released_chart_has_its_image_digests(tmp_path: Path, digests: Path, engine: str) -> None:
    assert main([str(tmp_path), "--registry", REGISTRY, "--digests", str(digests)]) == 0
    helm(engine, "package", str(tmp_path / "herd"), "--destination", str(tmp_path))
    (package,) = tmp_path.glob("herd-*.tgz")
    about: dict[str, Any] = yaml.safe_load(helm(engine, "show", "chart", str(package)))
    source = yaml.safe_load((CHART / "Chart.yaml").read_text())
    noted = about.pop("annotations")
    static = source.pop("annotations")
    assert about == source
    assert {name: noted[name] for name in static} == static
    assert noted["artifacthub.io/license"] == "Apache-2.0"
    images = {each["name"]: each["image"] for each in yaml.safe_load(noted["artifacthub.io/images"])}
    assert images == {f"herd-{service}": f"{REGISTRY}/herd-{service}@{digest}" for service, digest in DIGESTS.items()}
    for each in workloads(render(chart=package, engine=engine)):
        assert container_of(each)["image"].startswith(f"{REGISTRY}/herd-")


def test_links_of_the_chart_lead_to_files_of_this_repository() -> None:
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    for link in yaml.safe_load(about["annotations"]["artifacthub.io/links"]):
        assert link["url"].startswith(about["home"])
        if "/blob/main/" in link["url"]:
            assert (ROOT / link["url"].partition("/blob/main/")[2]).is_file()


def test_a_missing_digest_stops_the_release(tmp_path: Path, digests: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (digests / "replay").write_text("latest")
    assert main([str(tmp_path), "--registry", REGISTRY, "--digests", str(digests)]) == 1
    assert re.fullmatch(r"release_chart: .*replay: should hold the digest of herd-replay's image, sha256:\.\.\.\n", capsys.readouterr().err)
    assert not (tmp_path / "herd").exists()


@pytest.mark.parametrize("job", ["images", "chart"])
def test_pushed_artifacts_are_signed_and_have_a_provenance(job: str) -> None:
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    described = yaml.safe_load(text)["jobs"][job]
    assert described["permissions"] == {"contents": "read", "packages": "write", "id-token": "write", "attestations": "write"}
    assert described["env"]["REGISTRY"] == "ghcr.io/${{ github.repository_owner }}"
    steps = described["steps"]
    (push,) = [number for number, step in enumerate(steps) if step.get("id") == "push"]
    pushed = {"IMAGE": "${{ steps.push.outputs.image }}", "DIGEST": "${{ steps.push.outputs.digest }}"}
    assert re.search(r"^(docker|helm) push ", steps[push]["run"], re.MULTILINE)
    (sign,) = [step for step in steps[push:] if step.get("run") == 'cosign sign --yes "${IMAGE}@${DIGEST}"']
    assert sign["env"] == pushed
    (attest,) = [step["with"] for step in steps[push:] if step.get("uses", "").startswith("actions/attest-build-provenance@")]
    assert attest == {
        "subject-name": pushed["IMAGE"],
        "subject-digest": pushed["DIGEST"],
        "push-to-registry": True,
        "create-storage-record": False,
    }
