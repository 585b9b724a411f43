"""CLDR and strftime patterns against datetime, number patterns against values worked out by hand."""

from __future__ import annotations

import datetime as dt

import pytest
from croissant_local_files import shared_connection
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.data.croissant.scanning.formats import date_format, number_text
from holdfast.errors import InputError

CASES = [
    # CLDR, the same written with Python's strftime
    ("yyyy-MM-dd", "%Y-%m-%d"),
    ("dd.MM.yy", "%d.%m.%y"),
    ("MM/dd/yyyy HH:mm", "%m/%d/%Y %H:%M"),
    ("yyyy-MM-dd'T'HH:mm:ss.SSSSSS", "%Y-%m-%dT%H:%M:%S.%f"),
    ("yyyy-MM-ddTHH:mm:ss", "%Y-%m-%dT%H:%M:%S"),
    ("EEEE, d MMMM yyyy", "%A, %d %B %Y"),
    ("EEE MMM dd HH:mm:ss yyyy", "%a %b %d %H:%M:%S %Y"),
    ("hh:mm a, yyyy-MM-dd", "%I:%M %p, %Y-%m-%d"),
    ("yyyyMMdd", "%Y%m%d"),
    ("yyyy-MM-dd HH 'o''clock'", "%Y-%m-%d %H o'clock"),
    ("yyyy-MM-dd HH:mm:ss Z", "%Y-%m-%d %H:%M:%S %z"),
    ("100% 'at' yyyy".replace("% ", " "), "100 at %Y"),
]
MOMENTS = st.datetimes(dt.datetime(1970, 1, 1), dt.datetime(2068, 12, 31))


@settings(max_examples=60, deadline=None)
@given(moment=MOMENTS, case=st.sampled_from(CASES))
def test_patterns_read_what_python_writes(moment, case):
    cldr, strftime = case
    moment = moment.replace(tzinfo=dt.UTC) if "%z" in strftime else moment
    text = moment.strftime(strftime)
    expected = dt.datetime.strptime(text, strftime)
    for pattern in (cldr, strftime):
        arguments = [text, date_format(pattern).strptime]
        (found,) = shared_connection().execute("SELECT strptime(?, ?)", arguments).fetchone()
        assert found == expected, pattern


@pytest.mark.parametrize(
    ("pattern", "time", "zone"),
    [
        ("yyyy-MM-dd", False, False),
        ("HH:mm", True, False),
        ("yyyy-MM-dd HH:mm:ssXXX", True, True),
        ("%Y-%m-%dT%H:%M:%S%z", True, True),
        ("%Y %%H", False, False),
        ("%T", True, False),
        ("'HH'yyyy", False, False),
    ],
)
def test_what_a_pattern_holds(pattern, time, zone):
    found = date_format(pattern)
    assert (found.time, found.zone) == (time, zone)


@pytest.mark.parametrize(
    ("pattern", "letter"),
    [
        ("yyyy-MM-dd G", "G"),
        ("YYYY-MM-dd", "YYYY"),
        ("QQ yyyy", "QQ"),
        ("%Y %E", "%E"),
        ("%", "%"),
        ("yyyy 'a", "'a"),
    ],
)
def test_letters_that_cannot_be_read_are_named(pattern, letter):
    with pytest.raises(InputError) as caught:
        date_format(pattern)
    assert caught.value.found == letter


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("#,##0.00", "1,234.50", 1234.5),
        ("#,##0.00", "-1,234,567.5", -1234567.5),
        ("0.##E0", "1.25E3", 1250.0),
        ("¤#,##0.00", "$1,234.50", 1234.5),
        ("#,##0.00 ¤", "1,234.50 €", 1234.5),
        ("#0.#%", "12.5%", 0.125),
        ("0‰", "5‰", 0.005),
        ("0.0 'kg'", "7.5 kg", 7.5),
        ("0", "+7", 7.0),
    ],
)
def test_number_patterns(pattern, text, expected):
    sql, divisor = number_text("x", pattern)
    (found,) = (
        shared_connection()
        .execute(f"SELECT CAST({sql} AS DOUBLE) FROM (SELECT ? AS x)", [text])
        .fetchone()
    )
    assert found / divisor == expected


@pytest.mark.parametrize("pattern", ["yyyy", "#,##0.00;(#)", "", "#.#.#"])
def test_number_patterns_that_are_none(pattern):
    with pytest.raises(InputError, match="number pattern"):
        number_text("x", pattern)
