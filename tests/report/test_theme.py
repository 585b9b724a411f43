"""Contrast of the palette by the formula of WCAG 2.2, and colours that follow light and dark."""

from __future__ import annotations

import pytest

from holdfast.report import theme


def luminance(colour: str) -> float:
    channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_the_formula_on_published_values() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.01)


PAGES = pytest.mark.parametrize("page", [0, 1], ids=["light", "dark"])


@PAGES
@pytest.mark.parametrize("surface", ["background", "raised"])
@pytest.mark.parametrize("text", ["ink", "muted", "link"])
def test_text_has_contrast(page: int, surface: str, text: str) -> None:
    assert contrast(theme.COLOURS[text][page], theme.COLOURS[surface][page]) >= 4.5


@PAGES
def test_marks_have_contrast_by_themselves_or_by_their_edge(page: int) -> None:
    background = theme.COLOURS["background"][page]
    surfaces = {"background", "raised", "line", "grid", "edge"}
    edge = contrast(theme.COLOURS["edge"][page], background)
    for name in set(theme.COLOURS) - surfaces:
        own = contrast(theme.COLOURS[name][page], background)
        ramp = name in ("ramp1", "ramp2")  # the weakest steps, labelled at the line
        assert max(own, edge) >= 3 or (ramp and own >= 1.7), (name, own)


@PAGES
def test_the_first_order_is_darker_than_the_second(page: int) -> None:
    first, second = (luminance(theme.COLOURS[name][page]) for name in ("first", "second"))
    assert second > first + 0.3


def test_okabe_ito_keeps_its_meanings() -> None:
    light = {name: pair[0] for name, pair in theme.COLOURS.items()}
    assert (light["user"], light["system"], light["hardware"]) == ("#0072b2", "#e69f00", "#d55e00")


def test_colours_are_variables_that_exist() -> None:
    light, dark = theme.css_variables()
    assert light.count("--") == dark.count("--") == len(theme.COLOURS)
    assert theme.colour("user") == "var(--user)"
    with pytest.raises(KeyError, match="no colour named 'pink'"):
        theme.colour("pink")
