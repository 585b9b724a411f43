"""Every record set of the standard's own datasets that can be read here gives the records it should."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from expected_records import differences, flat, read_expected

from holdfast.data.croissant.document.model import FileObject, FileSet
from holdfast.data.croissant.loading.dataset import Dataset
from holdfast.data.croissant.planning.origins import leaves

STALE = {
    # No description in their folder has a record set of that name any more.
    "0.8/recipes/csv", "0.8/recipes/hello", "1.0/recipes/csv", "1.0/recipes/hello",
}  # fmt: skip


@pytest.fixture(scope="module")
def suite(shared_data: Path) -> Path:
    return shared_data / "croissant" / "datasets"


def descriptions(folder: Path) -> list[Path]:
    return [
        path for path in sorted(folder.glob("*.json")) if "@context" in json.loads(path.read_text())
    ]


def opened(path: Path, cache: Path) -> Dataset:
    """A dataset; a repository that has been put beside the description, in ``data``, is used."""
    plain = Dataset(path, offline=True, cache=cache)
    beside = {part.id: path.parent / "data" / part.id for part in plain.metadata.file_objects}
    here = {name: folder for name, folder in beside.items() if folder.is_dir()}
    return Dataset(path, mapping=here, offline=True, cache=cache) if here else plain


def is_here(dataset: Dataset, record_set: str) -> bool:
    """Whether all that a record set reads, at any remove, is on this machine."""
    records = dataset.fields.record_set(record_set)
    for leaf in leaves(records):
        table = dataset.fields.origin(records, leaf).table
        if table.kind == "records" and not is_here(dataset, table.id):
            return False
        if table.kind == "resource" and not _resource_here(dataset, table.id):
            return False
    return True


def _resource_here(dataset: Dataset, resource: str) -> bool:
    part: FileObject | FileSet = dataset.metadata.resource(resource)
    if part.contained_in:
        return all(_resource_here(dataset, inside.target) for inside in part.contained_in)
    if isinstance(part, FileObject):
        local = "://" not in (part.content_url or "")
        return local or (dataset.path.parent / "data" / part.id).is_dir()
    folder = dataset.path.parent
    return any(any(folder.glob(pattern)) for pattern in part.includes)


def outputs(suite: Path) -> list[Path]:
    return sorted(suite.glob("*/*/output/*.jsonl"))


def name_of(suite: Path, output: Path) -> str:
    return f"{output.parent.parent.relative_to(suite)}/{output.stem}"


def test_the_outputs_of_no_record_set_are_known(suite: Path, tmp_path: Path) -> None:
    unnamed = set()
    for output in outputs(suite):
        folder = output.parent.parent
        found = [opened(path, tmp_path).record_sets for path in descriptions(folder)]
        if not any(output.stem in names for names in found):
            unnamed.add(name_of(suite, output))
    assert unnamed == STALE


def test_every_output_that_can_be_read_here_is_equal(suite: Path, tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    pytest.importorskip("soundfile")
    compared, wrong = Counter[str](), []
    for output in outputs(suite):
        for path in descriptions(output.parent.parent):
            dataset = opened(path, tmp_path)
            if output.stem not in dataset.record_sets or not is_here(dataset, output.stem):
                continue
            expected = read_expected(output)
            ours = list(dataset.records(output.stem).rows(decode=True))
            compared[name_of(suite, output)] += 1
            wrong += [f"{name_of(suite, output)} {line}" for line in compare(ours, expected)]
    assert not wrong, "\n".join(wrong[:20])
    assert len(compared) >= 30
    assert set(compared.values()) == {1}


def compare(ours: list[dict[str, object]], expected: list[dict[str, object]]) -> list[str]:
    """What differs. Where an output was cut short, it has the first records; files come in any order."""
    if expected and not any(isinstance(value, dict) for value in expected[0].values()):
        ours = [flat(record) for record in ours]
    if expected and set(expected[0]) != set(
        ours[0]
    ):  # an output from when ids were written shorter
        ours = [{key.rpartition("/")[2]: value for key, value in one.items()} for one in ours]
    if len(ours) < len(expected):
        return [f"{len(ours)} records instead of {len(expected)}"]
    left = list(ours)
    for record in expected:
        match = next((one for one in left if not list(differences(one, record))), None)
        if match is None:
            closest = left[0] if left else {}
            return list(differences(closest, record))[:3]
        left.remove(match)
    if len(left) and len(expected) > 10:
        return [f"{len(left)} records too many"]
    return []
