"""Where a cache goes, against brute force; and that what it returns is never wrong."""

from __future__ import annotations

import functools
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.data.pipeline.cache_plan import Output, plan_cache
from holdfast.data.pipeline.cache_store import Store
from holdfast.data.pipeline.encoding import decode, digest, encode
from holdfast.data.pipeline.graph import Pipeline
from holdfast.data.pipeline.randomness import randomness
from holdfast.errors import InputError

# --- Choice --------------------------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(st.integers(0, 50), st.sampled_from([False, False, False, True])),
        max_size=7,
    ),
    st.one_of(st.none(), st.integers(0, 20)),
    st.integers(0, 600),
    st.integers(0, 600),
)
def test_choice_against_brute_force(
    chain: list[tuple[int, bool]], total: int | None, memory: int, disk: int
) -> None:
    outputs = [Output(str(i), size, flag) for i, (size, flag) in enumerate(chain)]
    plan = plan_cache(outputs, total, memory_bytes=memory, disk_bytes=disk)
    possible = [
        i
        for i, (size, _) in enumerate(chain)
        if total is not None
        and size > 0
        and all(flag is False for _, flag in chain[: i + 1])
        and (size * total <= memory or size * total <= disk)
    ]
    if not possible:
        assert plan.stage is None
        assert plan.store == ""
    else:
        best = max(possible)
        assert plan.stage == str(best)
        assert plan.store == ("memory" if chain[best][0] * (total or 0) <= memory else "disk")
    if total is not None:  # bytes = seen x total / seen
        assert [part.bytes for part in plan.candidates] == [size * total for size, _ in chain]


# --- Randomness and identity ---------------------------------------------------------------------

GENERATOR = np.random.default_rng(0)
FACTOR = 2


def scaled(x: float) -> float:
    return x * FACTOR


def jitter(x: float) -> float:
    return x + random.random()


def rarely(x: float, chance: float = 0.001) -> float:
    """Differs between two runs too seldom to be seen."""
    draw = getattr(random, "ran" + "dom")
    return x + 1 if draw() < chance else x


class Chain:
    def __init__(self, *steps: Any) -> None:
        self.steps = steps

    def __call__(self, x: float) -> float:
        return functools.reduce(lambda value, step: step(value), self.steps, x)


class Counter:
    count = 0

    def __call__(self, x: float) -> float:
        self.count += 1
        return x + self.count


@pytest.mark.parametrize(
    ("function", "declared", "reason"),
    [
        (scaled, None, ""),
        (Chain(scaled, abs), None, ""),
        (scaled, True, "declared"),
        (Chain(scaled, Chain(functools.partial(jitter))), None, "jitter uses random"),
        (jitter, False, "draws from a global generator"),
        (Chain(rarely), False, "draws from a global generator"),
        (lambda x: x + GENERATOR.normal(), None, "holds a generator (Generator)"),
        (Counter(), None, "two runs of one sample differ"),
    ],
)
def test_randomness(function: Any, declared: bool | None, reason: str) -> None:
    before = random.getstate()
    assert randomness(function, [1.0, 2.0], declared) == reason
    assert random.getstate() == before


def test_digests_tell_contents_apart(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    path = tmp_path / "a.bin"
    path.write_bytes(b"1")
    values = [
        torch.ones(2, requires_grad=True),
        torch.zeros(2),
        {"b": {3, 1}, 2: Chain(1, 2)},
        {"b": {3, 1}, 2: Chain(1, 3)},
        [str(path)],
        np.array([{}, None]),
    ]
    first = [digest(value) for value in values]
    assert len(set(first)) == len(values)
    assert digest(torch.ones(2)) == first[0]
    path.write_bytes(b"22")
    assert [digest(value) == old for value, old in zip(values, first, strict=True)].count(
        False
    ) == 1


# --- Samples as bytes ----------------------------------------------------------------------------

plain = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.binary()
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.one_of(st.text(), st.integers()), inner, max_size=3),
    ),
    max_leaves=8,
)


@given(plain)
def test_values_come_back(value: Any) -> None:
    assert repr(decode(encode(value))) == repr(value)


def test_arrays_tensors_and_images_come_back() -> None:
    arrays = [
        np.zeros((0, 2), "f4"),
        np.array(5, ">i2"),
        np.asfortranarray(np.ones((2, 3))),
        np.array(["ab", "c"]),
        np.array(["2026-01-01"], "M8[D]"),
        np.float32(3),
        np.bool_(True),
    ]
    for array in arrays:
        back = decode(encode(array))
        assert type(back) is type(array)
        assert back.dtype == array.dtype
        assert np.array_equal(back, array)
    decode(encode(arrays[2]))[0] = 7  # writable
    image = pytest.importorskip("PIL.Image").new("RGB", (3, 2), (1, 2, 3))
    image.info["exif"] = b"rotated"
    back = decode(encode(image))
    assert (back.mode, back.size, back.tobytes(), back.info) == (
        image.mode,
        image.size,
        image.tobytes(),
        image.info,
    )


@pytest.mark.parametrize(
    "value", [object(), np.array([{}]), np.zeros(1, [("a", "i4")]), {1, 2}, np.ma.masked_array([1])]
)
def test_other_types_are_refused(value: Any) -> None:
    with pytest.raises(InputError) as caught:
        encode([value])
    assert caught.value.code == "unsupported"


# --- Stores --------------------------------------------------------------------------------------

TOTAL = 40


def sample(position: int) -> dict[str, Any]:
    return {"id": position, "x": np.full(position % 7, position, np.int32)}


def fill(folder: Path, key: str = "k", budget: float = 1e6) -> Store:
    store = Store(folder, key, budget)
    for position in range(TOTAL):
        store.put(position, sample(position))
    return store


def present(store: Any) -> list[int]:
    """Positions that are in the store; what it returns must be right."""
    positions = []
    for position in range(TOTAL):
        hit = store.get(position)
        if hit is not None:
            assert encode(hit[0]) == encode(sample(position))
            positions.append(position)
    return positions


def test_disk_cache_is_read_again(tmp_path: Path) -> None:
    assert present(fill(tmp_path / "cache")) == list(range(TOTAL))
    again = Store(tmp_path / "cache", "k", 1e6)
    assert present(again) == list(range(TOTAL))
    assert (again.torn, again.stale) == (0, 0)


def test_stale_cache_is_removed(tmp_path: Path) -> None:
    fill(tmp_path).close()
    other = Store(tmp_path, "other", 1e6)
    assert present(other) == []
    assert other.stale == 1
    assert [path.stem for path in tmp_path.iterdir()] == ["other"]


@pytest.mark.examples(40)
@settings(max_examples=150, deadline=None)
@given(st.data())
def test_torn_cache_is_found_and_rebuilt(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("cache")
    fill(folder).close()
    (segment,) = folder.iterdir()
    content = bytearray(segment.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    kind = data.draw(st.sampled_from(["flip", "cut", "zeros", "longer"]))
    if kind == "flip":
        content[at] ^= 1 << data.draw(st.integers(0, 7))
    elif kind == "cut":
        del content[at:]
    elif kind == "zeros":
        content[at:] = bytes(len(content) - at)
    else:
        content += b"x"
    segment.write_bytes(content)
    torn = Store(folder, "k", 1e6)
    survivors = present(torn)  # what damage did not reach, and only right values
    # Bytes that no row uses may change unseen.
    assert torn.torn > 0 or len(survivors) == TOTAL or kind == "flip"
    for _ in range(3):  # damage that only writing meets begins the file anew
        for position in set(range(TOTAL)) - set(present(torn)):
            torn.put(position, sample(position))
    torn.close()
    assert present(Store(folder, "k", 1e6)) == list(range(TOTAL))


def test_killed_before_all_is_written(tmp_path: Path) -> None:
    code = (
        "import os, pathlib\n"
        "from holdfast.data.pipeline.cache_store import Store\n"
        f"store = Store(pathlib.Path({str(tmp_path)!r}), 'k', 1e6)\n"
        "store.put(0, {'id': 0, 'x': None})\n"
        "store._database.execute('BEGIN IMMEDIATE')\n"
        "store.put(1, 'never seen')\n"
        "os._exit(9)"
    )
    killed = subprocess.run([sys.executable, "-c", code], check=False)
    assert killed.returncode == 9
    store = Store(tmp_path, "k", 1e6)
    assert store.get(0) == ({"id": 0, "x": None},)
    assert store.get(1) is None
    assert store.torn == 0


def test_budgets_hold(tmp_path: Path) -> None:
    for budget in (5_000, 30_000):
        store = Store(tmp_path, "k", budget)
        for position in range(TOTAL):
            store.put(position, {**sample(position), "more": bytes(500)})
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= budget
        held = [position for position in range(TOTAL) if store.get(position)]
        assert len(held) == 0 if budget == 5_000 else 0 < len(held) < TOTAL
        store.close()
    memory = Store(None, "", 9_000)
    for position in range(TOTAL):
        memory.put(position, sample(position))
    assert 0 < len(present(memory)) < TOTAL
    memory.get(0)[0]["id"] = "changed in place"  # type: ignore[index]
    assert memory.get(0)[0]["id"] == 0  # type: ignore[index]


def test_two_writers_share_a_folder(tmp_path: Path) -> None:
    first, second = (Store(tmp_path, "k", 1e6) for _ in range(2))
    for position in range(TOTAL):
        (first, second)[position % 2].put(position, sample(position))
    first.close(), second.close()
    assert present(Store(tmp_path, "k", 1e6)) == list(range(TOTAL))


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(InputError) as caught:
        Store(tmp_path, "k", 1e6)
    assert caught.value.code == "conflict"
    assert (tmp_path / "thesis.tex").exists()


def test_a_type_that_cannot_be_stored_ends_the_cache_only(tmp_path: Path) -> None:
    store = Store(tmp_path, "k", 1e6)
    store.put(0, object())
    assert store.refused == "object"


# --- In a graph ----------------------------------------------------------------------------------


class Reads:
    """Counts how often samples are computed."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, position: int) -> np.ndarray:
        if position in (3, 9) and self.count < 25:
            self.count += 1
            raise OSError("try again later")
        self.count += 1
        return np.full(5, position)


def noisy(value: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    value += 1  # in place: the cache must not see it
    return value + generator.normal(size=value.shape)


def batches(pipeline: Pipeline) -> list[bytes]:
    return [batch.tobytes() for batch in pipeline]


@pytest.mark.quick(2)
@pytest.mark.parametrize("on_disk", [False, True])
@pytest.mark.parametrize("budget", [1e6, 2500.0])
def test_a_cached_pipeline_delivers_the_same(tmp_path: Path, on_disk: bool, budget: float) -> None:
    def build(folder: Path | None, cached: bool) -> tuple[Pipeline, Reads]:
        reads = Reads()
        reads.count = 25
        head = Pipeline(range(25), shuffle=True, seed=2).map(reads, name="read", threads=2)
        head = head.cache(folder, budget=budget, version="1") if cached else head
        return head.map(noisy, random=True, threads=2).batch(4, np.stack), reads

    plain_pipeline, _ = build(None, cached=False)
    expected = [batches(plain_pipeline) for _ in range(3)]
    pipeline, reads = build(tmp_path / "cache" if on_disk else None, cached=True)
    assert [batches(pipeline) for _ in range(3)] == expected
    computed = reads.count - 25
    assert computed == 25 if budget == 1e6 else 25 < computed <= 75


def test_a_sample_that_failed_is_tried_again() -> None:
    reads = Reads()
    pipeline = Pipeline(range(25), on_error="skip").map(reads).cache(budget=1e6)
    counts = [len(list(pipeline)) for _ in range(2)]
    assert counts == [23, 25]


def test_a_cache_survives_the_process_and_notices_other_stages(tmp_path: Path) -> None:
    def state(factor: int) -> tuple[int, int]:
        pipeline = Pipeline(range(10)).map(lambda x: x * factor, name="times")
        pipeline = pipeline.cache(tmp_path, budget=1e6)
        assert list(pipeline) == [x * factor for x in range(10)]
        store = pipeline.cache_store
        assert store is not None
        store.close()
        return store.stale, store.torn

    assert [state(2), state(2), state(3)] == [(0, 0), (0, 0), (1, 0)]


def test_what_cannot_be_stored_is_computed_each_time() -> None:
    graph = Pipeline(range(3)).map(lambda x: lambda: x, name="function").cache(budget=1e6)
    assert [[f() for f in graph] for _ in range(2)] == [[0, 1, 2]] * 2


def test_plan_of_a_graph() -> None:
    def decode_all(position: int) -> np.ndarray:
        return np.zeros(1000, np.uint8)

    def enlarge(value: np.ndarray) -> np.ndarray:
        return np.zeros(10_000, np.uint8)

    graph = Pipeline(range(500)).map(decode_all).map(enlarge).map(noisy, random=True).batch(4)
    plans = [
        graph.plan_cache(memory_bytes=memory, disk_bytes=disk)
        for memory, disk in [(1e7, 0), (1e6, 1e7), (1e6, 0), (9e3, 0), (10, 10)]
    ]
    assert [(plan.stage, plan.store) for plan in plans] == [
        ("enlarge", "memory"),
        ("enlarge", "disk"),
        ("decode_all", "memory"),
        ("source", "memory"),
        (None, ""),
    ]
    assert [part.stage for part in plans[0].candidates] == [
        "source",
        "decode_all",
        "enlarge",
        "noisy",
    ]
    decoded = plans[0].candidates[1].bytes
    assert decoded is not None
    assert 500_000 < decoded < 600_000  # 500 x (1,000 bytes and a header)
    unknown = Pipeline(x for x in range(3)).map(abs).plan_cache(memory_bytes=1e9)
    assert (unknown.stage, {part.bytes for part in unknown.candidates}) == (None, {None})


def test_memory_stays_within_the_budget() -> None:
    """Samples of 1 MB, a budget of 20 MB: the process may not grow by the 200 MB of the epoch."""
    code = (
        "import resource, numpy as np\n"
        "from holdfast.data.pipeline.graph import Pipeline\n"
        "read = lambda i: np.full(1 << 20, i % 251, np.uint8)\n"
        "rss = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024\n"
        "sum(1 for _ in Pipeline(range(40)).map(read, threads=2))\n"
        "before = rss()\n"
        "pipeline = Pipeline(range(200)).map(read, threads=2).cache(budget=20e6)\n"
        "assert [int(x[0]) for _ in range(2) for x in pipeline] == [i % 251 for i in range(200)] * 2\n"
        "print(rss() - before)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(run.stdout) < 20e6 + 15e6  # and a few samples on their way
