"""Prepares the chart for a release: ``python -m helm.tools.release_chart FOLDER --registry REGISTRY --digests DIGESTS``.

It copies the chart to FOLDER/herd and sets the registry of the release's images as the default of ``image.registry``. For Artifact Hub it
adds the images with their digests, and the changes of this version from CHANGELOG.md. DIGESTS is a folder with one file per service, which
has the service's name and contains the digest of its image.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from helm.tools.values_schema import CHART
from herd.topology import SERVICE_NAMES

if TYPE_CHECKING:
    from collections.abc import Sequence

CHANGELOG = CHART.parents[1] / "CHANGELOG.md"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_IMAGE_REGISTRY = re.compile(r'(^image:\n(?:  .*\n)*?  registry: )""$', re.MULTILINE)
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


class ReleaseError(ValueError):
    """The chart cannot be released; one line."""


def changes_of(version: str, changelog: str) -> list[str]:
    """Return the entries of a version in a text like CHANGELOG.md, without Markdown.

    Raises:
        ReleaseError: the text has no such version, or the version has no entries.
    """
    section = re.search(rf"^## {re.escape(version)} - .*\n((?:(?!## ).*\n?)*)", changelog, re.MULTILINE)
    entries = re.findall(r"^- (.+)$", section[1], re.MULTILINE) if section is not None else []
    if not entries:
        raise ReleaseError(f"CHANGELOG.md has no entries of version {version}: give its unreleased section this title")
    return [_LINK.sub(r"\1", entry).replace("`", "") for entry in entries]


def read_digests(folder: Path) -> dict[str, str]:
    """Return the digest of every service's image.

    Raises:
        ReleaseError: a digest is missing or invalid.
    """
    digests: dict[str, str] = {}
    for service in SERVICE_NAMES:
        file = folder / service
        digest = file.read_text().strip() if file.is_file() else ""
        if _DIGEST.fullmatch(digest) is None:
            raise ReleaseError(f"{file}: should hold the digest of herd-{service}'s image, sha256:...")
        digests[service] = digest
    return digests


def release_chart(folder: Path, *, registry: str, digests: dict[str, str], changelog: str) -> Path:
    """Write the chart for packaging; return its folder.

    Raises:
        ReleaseError: the changelog lacks this version.
    """
    made = Path(shutil.copytree(CHART, folder / "herd"))
    about = yaml.safe_load((made / "Chart.yaml").read_text())
    images = [{"name": f"herd-{service}", "image": f"{registry}/herd-{service}@{digest}"} for service, digest in digests.items()]
    annotations = {
        "artifacthub.io/changes": yaml.safe_dump(changes_of(about["appVersion"], changelog), width=1000),
        "artifacthub.io/images": yaml.safe_dump(images, sort_keys=False, width=1000),
    }
    about["annotations"] |= annotations
    (made / "Chart.yaml").write_text(yaml.safe_dump(about, sort_keys=False, width=1000))
    values, count = _IMAGE_REGISTRY.subn(rf'\g<1>"{registry}"', (made / "values.yaml").read_text())
    assert count == 1, "values.yaml has no image.registry"
    (made / "values.yaml").write_text(values)
    return made


def main(words: Sequence[str] | None = None) -> int:
    """Write the chart, or print one line with the reason."""
    parser = argparse.ArgumentParser(prog="python -m helm.tools.release_chart", description=__doc__)
    parser.add_argument("folder", type=Path, help="where to write the folder herd, which must not exist")
    parser.add_argument("--registry", required=True, help="registry and path of the images")
    parser.add_argument("--digests", type=Path, required=True, help="folder with one file per service: the digest of its image")
    given = parser.parse_args(words)
    try:
        made = release_chart(given.folder, registry=given.registry, digests=read_digests(given.digests), changelog=CHANGELOG.read_text())
    except (ReleaseError, OSError) as error:
        sys.stderr.write(f"release_chart: {error}\n")
        return 1
    sys.stdout.write(f"{made}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
