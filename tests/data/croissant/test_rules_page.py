"""The page of the rules lists each once and is not stale."""

from __future__ import annotations

import croissant_rules
from holdfast.data.croissant.rules.table import DATA_RULES, RULES


def test_the_page_lists_every_rule_once() -> None:
    page = croissant_rules.page()
    for code in (*RULES, *DATA_RULES):
        assert page.count(f">{code}<") == 1


def test_the_page_is_not_stale() -> None:
    stored = croissant_rules.PAGE.read_text(encoding="utf-8")
    assert stored == croissant_rules.page(), "run: python tools/croissant_rules.py"
