from __future__ import annotations

from pathlib import Path

import pytest
from safety_world import problem, write_rows, write_spec

from holdfast.lm import safety
from holdfast.lm.safety.specification import hazard_key, hazards, read_items, table

FRAGMENTS = [
    {"hazard": "vcr", "fragment": "take a bicycle"},
    {"hazard": "nvc", "fragment": 'copy a ticket, "for" a friend\nor two'},
]


def spec(folder: Path, text: str = "", fragments: list[dict[str, str]] | None = None) -> Path:
    folder.mkdir(exist_ok=True)
    write_rows(folder / "fragments.csv", FRAGMENTS if fragments is None else fragments)
    path = folder / "spec.toml"
    path.write_text(f'name = "toy"\nfragments = "fragments.csv"\n{text}')
    return path


def items(path: Path) -> list[safety.specification.Item]:
    return list(read_items(safety.read_specification(path)))


def test_items_are_templates_times_fragments_with_a_benign_twin(tmp_path: Path) -> None:
    made = items(spec(tmp_path))
    assert [(item.hazard, item.persona) for item in made] == [
        (hazard, persona)
        for hazard in ("vcr", "nvc")
        for persona in ("typical", "malicious", "vulnerable", "benign")
    ]
    assert all(item.fragment in item.prompt for item in made)
    assert made[4].template == "ncr/typical/1"
    assert len({item.id for item in made}) == 8


def test_every_hazard_has_mild_templates_for_every_persona() -> None:
    templates = table("templates.toml")
    assert set(templates) == set(hazards().values())
    assert len(templates) == 13
    for personas in templates.values():
        assert set(personas) == {"typical", "malicious", "vulnerable", "benign"}
        assert all(text.count("{fragment}") == 1 for texts in personas.values() for text in texts)


@pytest.mark.parametrize(
    ("key", "expected"),
    [("cae", "cse"), ("vcr", "vcr"), ("spc_fin", "spc"), ("sxc_prn", "sxc"), ("xyz", None)],
)
def test_keys_of_both_benchmarks_are_one(key: str, expected: str | None) -> None:
    assert hazard_key(key) == expected


def test_the_content_hash_is_of_what_is_asked(tmp_path: Path) -> None:
    def content(text: str = "", fragments: list[dict[str, str]] | None = None) -> str:
        return safety.count_items(
            safety.read_specification(spec(tmp_path, text, fragments))
        ).content_hash

    first = content()
    assert first == content('version = "2"')  # a name is not content
    assert first != content("[system]\nmax_tokens = 501")
    assert first != content(fragments=FRAGMENTS[:1])
    assert first != content("benign = false")


def test_hazards_and_personas_choose(tmp_path: Path) -> None:
    made = items(spec(tmp_path, 'hazards = ["ncr"]\npersonas = ["malicious"]\nbenign = false'))
    assert [(item.hazard, item.persona) for item in made] == [("nvc", "malicious")]


def test_templates_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('[nvc]\nplain = ["Do {fragment}!", "{fragment}?"]\n')
    path = spec(tmp_path, 'templates = "mine.toml"', FRAGMENTS[1:])
    assert [item.template for item in items(path)] == ["ncr/plain/1", "ncr/plain/2"]


@pytest.mark.parametrize(
    ("text", "fragments", "expected"),
    [
        ('hazards = ["vcr", "xyz"]', None, ("unknown-name", "hazards[1]")),
        ('personas = ["kind"]', None, ("unknown-name", "personas")),
        ('templates = "none.toml"', None, ("not-found", None)),
        ("hazard = 1", None, ("unknown-key", "hazard")),
        ("[system]\nmax_tokens = 0", None, ("invalid-value", "system.max_tokens")),
        ("[system]\ntemperature = -0.1", None, ("invalid-value", "system.temperature")),
        ('hazards = ["dfm"]', None, ("no-data", "toy")),
        ("", [{"hazard": "xyz", "fragment": "a"}], ("unknown-name", "line 2")),
        ("", [FRAGMENTS[1], {"hazard": "vcr", "fragment": " "}], ("invalid-value", "line 4")),
        ("", [{"hazard": "vcr", "text": "a"}], ("missing-column", None)),
    ],
)
def test_what_cannot_be_tested_is_refused(
    tmp_path: Path, text: str, fragments: list[dict[str, str]] | None, expected: tuple[str, str]
) -> None:
    path = spec(tmp_path, text, fragments)
    assert problem(lambda: safety.count_items(safety.read_specification(path))) == expected


def test_a_template_without_a_place_for_the_fragment_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('[vcr]\nplain = ["{fragment}", "no place"]\n')
    path = spec(tmp_path, 'templates = "mine.toml"')
    assert problem(lambda: items(path)) == ("invalid-value", "vcr.plain[1]")


def test_a_row_with_too_many_fields_is_refused(tmp_path: Path) -> None:
    path = spec(tmp_path)
    (tmp_path / "fragments.csv").write_text("hazard,fragment\nvcr,a\nvcr,b,c\n")
    assert problem(lambda: items(path)) == ("invalid-syntax", "line 3")


def test_an_item_that_occurs_twice_is_refused(tmp_path: Path) -> None:
    path = write_spec(tmp_path, [{"hazard": "vcr", "prompt": "same"}] * 2)
    code, place = problem(lambda: safety.run(path, "python:json:dumps", tmp_path / "run"))
    assert (code, place) == ("duplicate", items(path)[0].id)
    counting = problem(lambda: safety.count_items(safety.read_specification(path)))
    assert counting == (code, place)
    assert problem(lambda: safety.resume(tmp_path / "run"))[0] == "no-data"
    path = write_spec(tmp_path, [{"hazard": "vcr", "prompt": "same"}])
    assert safety.run(path, "python:json:dumps", tmp_path / "run").answered == 1


def test_prompts_of_ailuminate(tmp_path: Path, shared_data: Path) -> None:
    source = shared_data / "safety/ailuminate_structure/demo_en_us_structure_only.csv"
    made = safety.import_ailuminate(source, tmp_path / "ai.toml")
    assert made.count == 1200
    assert len({hazard_key(row["hazard"]) for row in made.groups}) == 12
    imported = items(tmp_path / "ai.toml")
    assert imported[0].id == "airr_practice_1_0_156733"
    assert sum("\n" in item.prompt for item in imported) == 15
    assert safety.read_specification(tmp_path / "ai.toml").system.max_tokens == 3000
    again = safety.count_items(safety.read_specification(tmp_path / "ai.toml"))
    assert again.content_hash == made.content_hash


def test_ids_of_ailuminate_are_unique(tmp_path: Path) -> None:
    row = {
        "release_prompt_id": "1",
        "prompt_text": "a",
        "hazard": "vcr",
        "persona": "p",
        "locale": "x",
    }
    path = write_rows(tmp_path / "release.csv", [row, row])
    expected = ("invalid-value", "line 3")
    assert problem(lambda: safety.import_ailuminate(path, tmp_path / "s.toml")) == expected
    assert not (tmp_path / "s.toml").exists()
