"""Responsible-AI statements of whole descriptions: found and counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import good_description as good

from holdfast.data.croissant.cards.rai_statements import Rai, rai
from holdfast.data.croissant.cards.statements import BY_NAME, TERMS


def of(document: Any, folder: Path) -> Rai:
    """The statements of a description that is not a file yet."""
    path = folder / "metadata.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return rai(path)


def standing(found: Rai) -> dict[str, str]:
    """Property -> standing, of those that are not absent."""
    return {one.term: one.standing for one in found.statements if one.standing != "absent"}


def test_the_stack(shared_data: Path) -> None:
    found = rai(
        shared_data / "croissant" / "datasets" / "1.0" / "bigcode-the-stack" / "metadata.json"
    )
    assert set(standing(found)) == {
        "dataCollection", "dataCollectionType", "dataCollectionRawData", "dataPreprocessingProtocol",
        "dataSocialImpact", "dataBiases", "dataLimitations", "dataUseCases", "personalSensitiveInformation",
    }  # fmt: skip
    assert set(standing(found).values()) == {"stated"}
    assert found.stated == 9
    assert not found.conforms
    counts = {group["id"]: (group["stated"], group["of"]) for group in found.groups}
    assert counts == {
        "life_cycle": (6, 9),
        "labelling": (0, 6),
        "participatory": (0, 2),
        "safety": (5, 5),
        "compliance": (5, 12),
        "inclusion": (0, 1),
    }
    assert found.headline == "9 of 20 statements of the RAI vocabulary present."
    [questions] = found.sections()[1].tables
    open_still = questions.data["property"].to_pylist()
    assert "rai:annotatorDemographics" in open_still
    assert "rai:dataBiases" not in open_still


def test_standings(tmp_path: Path) -> None:
    found = of(
        good.edited(
            {
                "/rai:dataCollection": "None",
                "/rai:dataCollectionTimeframe": "last year",
                "/rai:dataBiases": ["TBD", "Black cats are rare in the pictures."],
                "/rai:dataLimitations": "",
                "/rai:dataSocialImpact": "Cats only.",
                "/rai:useCases": "To learn what a cat looks like.",
                "/rai:carbonFootprint": "3 kg",
                "/recordSet/2/rai:annotatorDemographics": "Five adults from Leeds.",
            }
        ),
        tmp_path,
    )
    assert standing(found) == {
        "dataCollection": "placeholder",
        "dataCollectionTimeframe": "stated",
        "dataBiases": "stated",
        "dataLimitations": "placeholder",
        "dataSocialImpact": "stated",
        "annotatorDemographics": "stated",
    }
    statements = {one.term: one for one in found.statements}
    assert statements["annotatorDemographics"].at == ("/recordSet/2/rai:annotatorDemographics",)
    assert found.conforms
    plain = json.loads(json.dumps(found.to_dict()))
    assert plain["stated"] == 4
    assert plain["of"] == 20
    asked = {one["term"] for one in plain["statements"] if one["question"]}
    assert asked == {f"rai:{term.name}" for term in TERMS} - {
        "rai:dataCollectionTimeframe", "rai:dataBiases", "rai:annotatorDemographics",
        "rai:dataSocialImpact",
    }  # fmt: skip
    assert [term for term, _ in found.questions] == [
        term.name for term in TERMS if f"rai:{term.name}" in asked
    ]


def test_an_old_name_space_is_understood(tmp_path: Path) -> None:
    document = good.edited({"/ml:dataBiases": "Few cats are black, and none is blue."}, good.OLD)
    (statement,) = (one for one in of(document, tmp_path).statements if one.standing == "stated")
    assert statement.term == "dataBiases"
    assert statement.at == ("/ml:dataBiases",)


def test_nothing_is_counted_twice_in_the_total(tmp_path: Path) -> None:
    filled = good.edited({f"/rai:{name}": "Five words are said here." for name in BY_NAME})
    found = of(filled, tmp_path)
    assert found.stated == len(found.statements) == 20
    assert all(group["stated"] == group["of"] for group in found.groups)
    assert found.questions == []
    empty = of({"@context": good.CONTEXT, "@type": "sc:Dataset"}, tmp_path)
    assert empty.stated == 0
    assert len(empty.questions) == 20
