"""The table of mutations fits the source: each text is there once, and the tests it names exist."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from benchmarks.soak.mutations import MUTATIONS, ROOT, Mutation, apply


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_mutation_fits(mutation: Mutation, tmp_path: Path) -> None:
    files = {edit.file for edit in mutation.edits}
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)
    apply(mutation, tmp_path)
    for file in files:
        mutated = (tmp_path / file).read_text()
        compile(mutated, file, "exec")
        assert mutated != (ROOT / file).read_text()
    for test in (*mutation.fast, *mutation.whole):
        file, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / file).read_text() if name else (ROOT / file).is_file()


def test_a_text_that_is_gone_is_told(tmp_path: Path) -> None:
    mutation = MUTATIONS[0]
    file = tmp_path / mutation.edits[0].file
    file.parent.mkdir(parents=True)
    file.write_text("")
    with pytest.raises(ValueError, match="0 times"):
        apply(mutation, tmp_path)
