"""Prepares the chart for a release: ``python -m helm.tools.release_chart FOLDER --registry REGISTRY --digests DIGESTS``.

It copies the chart to FOLDER/herd and sets the registry of the release's images as the default of ``image.registry``. For Artifact Hub it
adds the images with their digests. DIGESTS is a folder with one file per service, which has the service's name and contains the digest of
its image.
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

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_IMAGE_REGISTRY = re.compile(r'(^image:\n(?:  .*\n)*?  registry: )""$', re.MULTILINE)


class ReleaseError(ValueError):
    """The chart cannot be released; one line."""


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


def release_chart(folder: Path, *, registry: str, digests: dict[str, str]) -> Path:
    """Write the chart for packaging; return its folder."""
    made = Path(shutil.copytree(CHART, folder / "herd"))
    about = yaml.safe_load((made / "Chart.yaml").read_text())
    images = [{"name": f"herd-{service}", "image": f"{registry}/herd-{service}@{digest}"} for service, digest in digests.items()]
    about["annotations"]["artifacthub.io/images"] = yaml.safe_dump(images, sort_keys=False, width=1000)
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
        made = release_chart(given.folder, registry=given.registry, digests=read_digests(given.digests))
    except (ReleaseError, OSError) as error:
        sys.stderr.write(f"release_chart: {error}\n")
        return 1
    sys.stdout.write(f"{made}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
