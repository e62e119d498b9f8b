from __future__ import annotations

import json
from pathlib import Path

import pytest

from services.learner.lineage import LINEAGE_FILE, LineageError, open_lineage


def test_every_start_goes_beyond_all_before_it(tmp_path: Path) -> None:
    lineages = [open_lineage(tmp_path), open_lineage(tmp_path), open_lineage(tmp_path, at_least=10), open_lineage(tmp_path, at_least=4)]
    assert lineages == [1, 2, 10, 11]


def test_it_is_on_disk_before_it_is_used(tmp_path: Path) -> None:
    lineage = open_lineage(tmp_path, at_least=5)
    assert json.loads((tmp_path / LINEAGE_FILE).read_text()) == {"lineage": lineage}
    assert [path.name for path in tmp_path.iterdir()] == [LINEAGE_FILE]


def test_a_directory_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="missing"):
        open_lineage(tmp_path / "missing")


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"lineage": "many"}', '{"lineage": null}'])
def test_a_damaged_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / LINEAGE_FILE).write_text(text)
    with pytest.raises(LineageError, match=LINEAGE_FILE):
        open_lineage(tmp_path)
