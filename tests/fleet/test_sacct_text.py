"""`sacct --parsable2`: other people's logs with their expected rows, and records made to mislead."""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.errors import InputError
from holdfast.fleet.formats import detect, sacct_text
from holdfast.fleet.formats.batch import ReadOptions
from holdfast.fleet.formats.sacct_repair import Layout, header_of, repair

MIMIC = "1234|COMPLETED|0:0\n99999|99999|fake|FAILED"


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "sacct.psv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def attempts(path: Path, **options: object) -> list[dict]:
    batches = sacct_text.read(path, ReadOptions(**options))
    return pa.concat_tables([batch.tables["attempts"] for batch in batches]).to_pylist()


def rejects(path: Path) -> list[dict]:
    batches = sacct_text.read(path, ReadOptions())
    return pa.concat_tables([batch.tables["rejects"] for batch in batches]).to_pylist()


def records(path: Path) -> list[dict[str, str]]:
    """The records of a log as printed, steps included, put together again where names broke them."""
    header = header_of(path)
    wanted = frozenset(header.layout.columns) - {""}
    blocks = sacct_text._blocks(path, header)
    tables = [sacct_text._rows(block, header, wanted).table for block in blocks]
    return [row for table in tables for row in table.to_pylist()]


@pytest.mark.parametrize("name", ["fake-line-break", "one-multiline", "multiple-multiline"])
def test_lines_broken_by_names_join_to_the_expected_records(shared_data: Path, name: str) -> None:
    folder = shared_data / "fleet" / "gcm"
    expected = (folder / f"sample-sacct-{name}-expected.txt").read_text().splitlines()
    columns = expected[0].split("|#")
    found = records(folder / f"sample-sacct-{name}.txt")
    assert ["|#".join(row[column] for column in columns) for row in found] == expected[1:]


def test_fragments_are_rejects_with_line_reason_and_text(shared_data: Path) -> None:
    path = shared_data / "fleet" / "gcm" / "sample-sacct-output-with-invalid-lines.txt"
    (reject,) = rejects(path)
    assert reject["line"] == 2
    assert reject["reason"] == "93 fields, expected 109"
    assert reject["raw"].startswith("lpha-0.0-ed|")
    assert attempts(path) == []


def test_invalid_utf8_is_replaced_and_counted(shared_data: Path) -> None:
    path = shared_data / "fleet" / "gcm" / "sample-sacct-output-invalid-utf8.txt"
    batches = list(sacct_text.read(path, ReadOptions()))
    assert sum(batch.facts["invalid_utf8"] for batch in batches) == 1
    assert [row["state"] for row in attempts(path)] == ["FAILED", "TIMEOUT"]
    assert rejects(path) == []


def test_every_sample_of_another_project_is_read_without_loss(shared_data: Path) -> None:
    for path in sorted((shared_data / "fleet" / "gcm").glob("sample-sacct-*.txt")):
        if "invalid-lines" in path.name:
            continue
        assert detect(path).name == "sacct"
        lines = sum(1 for _ in records(path))
        batches = list(sacct_text.read(path, ReadOptions()))
        rows = sum(len(batch.tables["attempts"]) + batch.steps for batch in batches)
        assert rows == lines > 0
        assert not any(len(batch.tables["rejects"]) for batch in batches)


def test_states_and_steps_of_a_real_cluster(testbed: Path) -> None:
    truth = {
        "COMPLETED": 315, "FAILED": 105, "PENDING": 95, "NODE_FAIL": 39, "PREEMPTED": 19,
        "CANCELLED": 17, "TIMEOUT": 12, "REQUEUED": 4, "DEADLINE": 2, "RESIZING": 2, "RUNNING": 1,
    }  # fmt: skip
    for name in ("sacct_D_all.psv.gz", "sacct_D_epoch.psv.gz"):
        rows = attempts(testbed / name)
        assert Counter(row["state"] for row in rows) == truth
        assert not {"99999", "1234"} & {row["job_id"] for row in rows}
        assert rejects(testbed / name) == []
    batches = sacct_text.read(testbed / "sacct_D_all.psv.gz", ReadOptions())
    assert sum(batch.steps for batch in batches) == 859


def test_memory_kills_and_signals_on_steps_mark_the_job(testbed: Path) -> None:
    rows = attempts(testbed / "sacct_D_all.psv.gz")
    killed = {row["job_id"] for row in rows if row["out_of_memory"]}
    assert killed == {
        row["JobID"].partition(".")[0]
        for row in records(testbed / "sacct_D_all.psv.gz")
        if "0:125" in (row["ExitCode"], row["DerivedExitCode"]) or row["State"] == "OUT_OF_MEMORY"
    }
    assert {row["state"] for row in rows if row["out_of_memory"]} == {"FAILED"}
    terminated = {(row["job_id"], row["submit_s"]) for row in rows if row["sigterm"]}
    assert {row["job_id"] for row in rows if row["exit_code"] == 15} <= {j for j, _ in terminated}


def test_excluded_nodes_come_from_the_submit_line(testbed: Path) -> None:
    rows = attempts(testbed / "sacct_D_all.psv.gz")
    # Of the 71 submissions with --exclude (its README), accounting never heard of one.
    asked = {row["job_id"].partition("_")[0] for row in rows if row["excluded_nodes"]}
    assert len(asked) == 70
    assert {node for row in rows for node in row["excluded_nodes"]} <= {
        f"node{number:02}" for number in range(1, 17)
    }


# --- Records made to mislead ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "columns",
    [  # with fewer columns (which ingest refuses: no times) nothing tells a name from a record
        "JobID|JobName|User|State",
        "JobName|JobID|State",
        "JobID|State|JobName",
        "State|JobID|JobName|End",
        "JobID|State|JobName|SubmitLine",
        "JobID|JobName|State|Start|End|NodeList|AllocTRES",
    ],
)
def test_a_name_that_imitates_a_record_makes_no_job(tmp_path: Path, columns: str) -> None:
    values = {
        "JobID": "420", "JobIDRaw": "420", "JobName": MIMIC, "State": "PENDING", "User": "chen",
        "Start": "Unknown", "End": "Unknown", "NodeList": "None assigned", "AllocTRES": "",
        "SubmitLine": f"sbatch --job-name={MIMIC} ./a.sh",
    }  # fmt: skip
    names = columns.split("|")
    plain = {**values, "JobName": "plain", "SubmitLine": "sbatch ./b.sh"}
    lines = [
        "|".join({**plain, "JobID": "419", "JobIDRaw": "419"}[name] for name in names),
        "|".join(values[name] for name in names),
        "|".join({**plain, "JobID": "421", "JobIDRaw": "421"}[name] for name in names),
    ]
    path = write(tmp_path, "\n".join([columns, *lines]) + "\n")
    rows = attempts(path)
    assert [(row["job_id"], row["state"]) for row in rows] == [
        ("419", "PENDING"),
        ("420", "PENDING"),
        ("421", "PENDING"),
    ]
    assert rows[1]["name"] == MIMIC.replace("\n", "\\n")
    assert rejects(path) == []


def test_a_line_that_was_cut_off_takes_no_other_with_it(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "JobID|JobName|User|State|Start|End\n"
        "1|a|u|COMPLETED|2026-01-01T00:00:00|2026-01-01T01:00:00\n"
        "2|b|u|COMP\n"
        "3|c|u|COMPLETED|2026-01-01T00:00:00|2026-01-01T01:00:00\n",
    )
    assert [row["job_id"] for row in attempts(path)] == ["1", "3"]
    assert [(row["line"], row["reason"]) for row in rejects(path)] == [(3, "4 fields, expected 6")]


def test_a_header_that_is_printed_again_is_no_record(tmp_path: Path) -> None:
    """`sacct ... >> log` prints its header each time; what a name spans stays together."""
    header = "JobID|JobName|User|State|Start|End"
    path = write(
        tmp_path,
        f"{header}\n"
        "1|a|u|COMPLETED|2026-01-01T00:00:00|2026-01-01T01:00:00\n"
        f"{header}\n"
        "2|x\ny|u|COMPLETED|2026-01-01T00:00:00|2026-01-01T01:00:00\n"
        f"{header}\r\n"
        "3|b|u|COMP\n",
    )
    assert [(row["job_id"], row["name"]) for row in attempts(path)] == [("1", "a"), ("2", "x\\ny")]
    assert [(row["line"], row["raw"]) for row in rejects(path)] == [(7, "3|b|u|COMP")]


def names(*odd: str) -> st.SearchStrategy[str]:
    pieces = ["a", "7", ":", " ", "FAILED", "0:0", "é", *odd]
    return st.lists(st.sampled_from(pieces), max_size=8).map("".join)


NAMES = names("|", "99|") | names("\n")


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(NAMES, NAMES), min_size=1, max_size=6), st.sampled_from(["|", "|#"]))
@example([(MIMIC, MIMIC), ("", "a|b")], "|")
def test_records_with_any_names_keep_their_typed_columns(
    pairs: list[tuple[str, str]], delimiter: str
) -> None:
    columns = ("JobID", "Comment", "DBIndex", "Elapsed", "ExitCode", "Account", "JobName",
               "NNodes", "Start", "State", "Submit", "Suspended", "UID")  # fmt: skip
    wanted, lines = [], []
    pairs = [("", "first"), *pairs, ("", "last")]  # a record is judged by its neighbours, too
    for number, (comment, name) in enumerate(pairs, 1):
        typed = (str(10**6 + number), None, str(100 + number), "00:00:17", "0:0", "vision", None,
                 "4", "2026-11-20T10:49:20", "CANCELLED by 1009", "2026-11-20T10:49:19", "00:00:00",
                 "1009")  # fmt: skip
        fields = [value if value is not None else "" for value in typed]
        fields[1], fields[6] = comment, name
        wanted.append([field.replace("\n", "\\n") for field in fields])
        lines += delimiter.join(fields).split("\n")
    found, refused = repair(lines, Layout.of(columns, delimiter))
    assert [fields for _, fields in found] == wanted
    assert refused == []


# --- Forms of the file ---------------------------------------------------------------------------


def test_forms_of_one_log_give_the_same_attempts(tmp_path: Path) -> None:
    text = (
        "JobID|State|Submit|Start|End|NodeList\n"
        "7|CANCELLED by 5|2026-01-01T00:00:00|2026-01-01T00:00:01|2026-01-01T01:00:00|n[1-2]\n"
        "7.batch|CANCELLED|2026-01-01T00:00:01|2026-01-01T00:00:01|2026-01-01T01:00:00|n1\n"
        "8_3|RUNNING|2026-01-01T00:00:00|2026-01-01T00:00:02|Unknown|n3\n"
        "8_[4-9%2]|PENDING|2026-01-01T00:00:00|Unknown|Unknown|None assigned\n"
        "9+1|COMPLETED|2026-01-01T00:00:00|2026-01-01T00:00:02|2026-01-01T00:00:09|n4\n"
    )
    want = attempts(write(tmp_path, text))
    assert [row["job_id"] for row in want] == ["7", "8_3", "8_[4-9%2]", "9+1"]
    assert [row["job_id_raw"] for row in want] == [7, None, None, 10]
    assert [row["end_s"] for row in want][1:3] == [None, None]
    assert [row["nodes"] for row in want] == [["n1", "n2"], ["n3"], [], ["n4"]]
    for other in (
        "\n\n" + text,
        "\ufeff" + text,
        text.replace("\n", "\r\n"),
        text.replace("|", "|#"),
        text.replace("|", "\t"),
        text.replace("|", ";"),
        text.replace("\n", "|\n"),
        text.rstrip("\n"),
        "\n".join("|".join(reversed(line.split("|"))) for line in text.splitlines()),
        gzip.compress(text.encode()),
    ):
        assert attempts(write(tmp_path, other)) == want


def test_columns_of_a_later_slurm_are_left_alone(tmp_path: Path) -> None:
    path = write(tmp_path, "JobID|Novelty|State|Restarts\n1|x y|FAILED|2\n2||COMPLETED|0\n")
    assert [(row["state"], row["restarts"]) for row in attempts(path)] == [
        ("FAILED", 2),
        ("COMPLETED", 0),
    ]
    assert rejects(path) == []


def test_small_blocks_give_what_one_block_gives(
    testbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = testbed / "sacct_D_all.psv.gz"
    whole = attempts(path)
    monkeypatch.setattr(sacct_text, "BLOCK_BYTES", 20_000)
    batches = list(sacct_text.read(path, ReadOptions()))
    assert len(batches) > 20
    assert pa.concat_tables([b.tables["attempts"] for b in batches]).to_pylist() == whole


def test_the_hour_that_occurs_twice_is_told_by_the_elapsed_time(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "JobID|State|Submit|Start|End|ElapsedRaw\n"
        "1|COMPLETED|2025-10-26T01:00:00|2025-10-26T01:30:00|2025-10-26T02:30:00|3600\n"
        "2|COMPLETED|2025-10-26T01:00:00|2025-10-26T01:30:00|2025-10-26T02:30:00|7200\n"
        "3|COMPLETED|2025-10-26T01:00:00|2025-10-26T02:30:00|2025-10-26T03:30:00|3600\n"
        "4|COMPLETED|2025-10-26T01:00:00|2025-10-26T02:30:00|2025-10-26T03:30:00|7200\n",
    )
    for row in attempts(path, timezone=ZoneInfo("Europe/Berlin")):
        assert row["end_s"] - row["start_s"] == row["runtime_s"]
    rows = "1|TIMEOUT|2025-11-02T01:50:00|2025-11-02T01:05:00|00:15:00\n"  # and without Elapsed
    rows += "2|TIMEOUT|2025-11-02T01:50:00|2025-11-02T01:05:00|\n"
    path = write(tmp_path, "JobID|State|Start|End|Elapsed\n" + rows)
    for row in attempts(path, timezone=ZoneInfo("America/New_York")):
        assert (row["start_s"], row["end_s"]) == (1762062600, 1762063500)


def test_gpus_are_counted_from_whatever_column_has_them(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "JobID|State|AllocTRES|ReqTRES|NNodes\n"
        "1|COMPLETED|cpu=4,gres/gpu:a100=8,gres/gpu=8|gres/gpu=4|2\n"
        "2|PENDING||cpu=4,gres/gpu=16|2\n"
        "3|COMPLETED|cpu=4,mem=1G|cpu=4|1\n",
    )
    assert [row["gpus"] for row in attempts(path)] == [8, 16, 0]


def test_a_node_list_that_is_cut_off_keeps_its_attempt(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "JobID|State|Start|End|NodeList|NNodes\n1|NODE_FAIL|||node[01-0|9\n2|FAILED|||a|1\n",
    )
    (batch,) = sacct_text.FORMAT.batches(path, ReadOptions())
    assert batch.facts["unreadable_node_lists"] == 1
    rows = batch.tables["attempts"].to_pylist()
    assert [(row["nodes"], row["node_count"]) for row in rows] == [([], 9), (["a"], 1)]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("JobName|State\nx|FAILED\n", "unknown-format"),
        ("JobID|Start|End\n1|Unknown|Unknown\n", "missing-column"),
        ("User|State|Start|End\nu|FAILED|Unknown|Unknown\n", "missing-column"),
        ("1|FAILED|0:0\n2|FAILED|1:0\n", "missing-header"),
        ("", "unknown-format"),
    ],
)
def test_what_is_no_log_is_refused_with_a_remedy(tmp_path: Path, text: str, code: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(InputError) as caught:
        list(sacct_text.read(path, ReadOptions()))
    assert (caught.value.code, caught.value.path) == (code, str(path))
    assert caught.value.remedy


def test_a_broken_archive_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, gzip.compress(b"JobID|State\n" + b"1|FAILED\n" * 100_000)[:-200])
    with pytest.raises(InputError, match="cannot be read"):
        list(sacct_text.read(path, ReadOptions()))


# --- Columns that Arrow reads as it parses -------------------------------------------------------

TYPED = "JobID|JobIDRaw|JobName|State|Submit|Start|End|ElapsedRaw|Priority|NNodes|NodeList|ExitCode"
ODD = ["", "Unknown", " 5", "5 ", "007", "-1", "5.5", "1e3", "99999999999999999999", "x",
       "2026-13-01T00:00:00", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00.5", "1767225600",
       "1969-12-31T18:00:00", "n[1-2", "0:0", "CANCELLED by 7"]  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 11), st.sampled_from(ODD)), max_size=3))
@example([(2, 5, "1767225600")])
@example([(0, 1, "x"), (3, 7, "5 ")])
@example([(1, 7, " 5"), (3, 7, "5 "), (2, 8, "1 ")])
def test_columns_are_the_same_however_a_block_is_read(
    tmp_path_factory: pytest.TempPathFactory, damages: list[tuple[int, int, str]]
) -> None:
    """Numbers and times that are parsed with the text are those that are read from it later."""
    lines = [
        f"{n}|{n}|job|COMPLETED|2026-01-01T00:00:00|2026-01-01T00:00:10|2026-01-01T00:01:10|60|1|1|n{n}|0:0"
        for n in range(1, 7)
    ]
    fields = [line.split("|") for line in lines]
    for row, column, text in damages:
        fields[row][column] = text
    # A name with a line break is repaired: its fields join those that were parsed.
    fields[4][2] = "two\nlines"
    path = write(tmp_path_factory.mktemp("log"), "\n".join([TYPED, *map("|".join, fields)]) + "\n")
    found = []
    for kinds in (sacct_text._KINDS, {}):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sacct_text, "_KINDS", kinds)
            found.append((attempts(path), rejects(path)))
    assert found[0] == found[1]


def test_the_rows_of_a_job_stay_in_one_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sacct_text, "BLOCK_BYTES", 400)
    rows = "".join(
        f"{job}|n|COMPLETED|2026-01-01T00:00:00|2026-01-01T00:0{again}:00\n{job}.0|n|COMPLETED||\n"
        for job in range(100, 130)
        for again in range(1 + job % 4)
    )
    path = write(tmp_path, f"JobID|JobName|State|Start|End\n{rows}")
    batches = list(sacct_text.read(path, ReadOptions()))
    jobs = [set(batch.tables["attempts"]["job_id"].to_pylist()) for batch in batches]
    assert len(jobs) > 5
    assert len(set.union(*jobs)) == sum(map(len, jobs)) == 30
