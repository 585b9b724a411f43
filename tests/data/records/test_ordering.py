"""The order of an epoch, its deal to ranks and workers, and what is left of it, against brute force."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from holdfast.data.records.loading.ordering import (
    Deal,
    Leg,
    batches_of,
    epoch_order,
    length,
    remaining,
    within,
)

counts_of_records = st.lists(st.integers(1, 9), max_size=12)
deals = st.builds(
    Deal,
    ranks=st.integers(1, 4),
    workers=st.integers(1, 4),
    batch=st.integers(1, 5),
    uneven=st.sampled_from(["keep", "pad", "drop"]),
    drop_last=st.booleans(),
)


# --- the order -------------------------------------------------------------------------------------


@given(counts_of_records, st.integers(-(2**70), 2**70), st.integers(0, 5), st.integers(1, 30))
def test_an_order_is_a_permutation_that_moves_images_only_inside_windows(
    counts, seed, epoch, window
):
    order = epoch_order(counts, seed=seed, epoch=epoch, window=window)
    assert sorted(order.numbers().tolist()) == list(range(sum(counts)))
    assert sorted(order.records.tolist()) == list(range(len(counts)))
    starts = np.concatenate([[0], np.cumsum(counts)])
    place = 0
    for number in range(len(order.windows) - 1):
        records = order.records[order.windows[number] : order.windows[number + 1]].tolist()
        whole = sorted(i for r in records for i in range(starts[r], starts[r + 1]))
        images = order.window(number).tolist()
        assert sorted(images) == whole
        assert order.edges[number] == place
        assert len(images) < window + max(counts)
        place += len(images)
    assert order.edges[-1] == place


@given(counts_of_records, st.integers(0, 3), st.integers(0, 3), st.integers(1, 20))
def test_an_order_depends_on_nothing_but_its_arguments(counts, seed, epoch, window):
    once = epoch_order(counts, seed=seed, epoch=epoch, window=window)
    np.random.default_rng().random(3)
    again = epoch_order(np.array(counts, np.uint32), seed=seed, epoch=epoch, window=window)
    assert once.numbers().tolist() == again.numbers().tolist()


def test_orders_of_other_seeds_and_epochs_differ():
    found = {
        tuple(epoch_order([4] * 16, seed=seed, epoch=epoch, window=8).numbers().tolist())
        for seed in range(5)
        for epoch in range(5)
    }
    assert len(found) == 25


def test_an_order_is_the_same_for_ever():
    """A run that is resumed with a later release must meet the same order."""
    order = epoch_order([3, 2, 4, 1], seed=7, epoch=2, window=4)
    assert order.numbers().tolist() == PINNED


PINNED = [6, 5, 7, 8, 4, 0, 1, 2, 3, 9]


def test_without_shuffling_images_come_as_they_are_stored():
    order = epoch_order([3, 2, 4], seed=1, epoch=1, window=2, shuffle=False)
    assert order.numbers().tolist() == list(range(9))


def test_every_image_may_come_first():
    """Each of 6 images leads in about 1/6 of the epochs: chi-squared with 5 degrees of freedom."""
    epochs = 3000
    firsts = Counter(
        int(epoch_order([2, 2, 2], seed=0, epoch=epoch, window=6).numbers()[0])
        for epoch in range(epochs)
    )
    chi_squared = sum((firsts[i] - epochs / 6) ** 2 / (epochs / 6) for i in range(6))
    assert chi_squared < 20.5  # its 0.999 quantile


@given(counts_of_records, st.integers(1, 20), st.data())
def test_stretches_are_the_order_at_those_places(counts, window, data):
    order = epoch_order(counts, seed=3, epoch=1, window=window)
    total = sum(counts)
    points = sorted(data.draw(st.lists(st.integers(0, total), max_size=6, unique=True)))
    intervals = np.array(points[: len(points) // 2 * 2], np.int64).reshape(-1, 2)
    stretches = list(order.stretches(intervals))
    assert len({stretch.window for stretch in stretches}) == len(stretches)
    found = [(s.window, image) for s in stretches for image in s.images.tolist()]
    every = order.numbers().tolist()
    places = [place for start, stop in intervals.tolist() for place in range(start, stop)]
    assert [image for _, image in found] == [every[place] for place in places]
    assert [w for w, _ in found] == [
        int(np.searchsorted(order.edges, place, side="right")) - 1 for place in places
    ]


def test_a_window_holds_an_image():
    with refused("out-of-range"):
        epoch_order([1], window=0)


# --- the deal --------------------------------------------------------------------------------------


def dealt_by_hand(deal: Deal, count: int) -> list[list[list[int]]]:
    """[ranks][batches in the order of delivery][images]: as the description has it, without edges."""
    shards = []
    for rank in range(deal.ranks):
        first = rank * count // deal.ranks
        own = list(range(first, (rank + 1) * count // deal.ranks))
        if deal.uneven == "pad":
            own = list(range(first, first + math.ceil(count / deal.ranks)))
        elif deal.uneven == "drop":
            own = own[: count // deal.ranks]
        shards.append(own)
    made = []
    for own in shards:
        batches = [own[i : i + deal.batch] for i in range(0, len(own), deal.batch)]
        if deal.drop_last:
            full = min(len(shard) for shard in shards) // deal.batch
            batches = batches[:full]
        else:
            most = max(-(-len(shard) // deal.batch) for shard in shards)
            while len(batches) < most and len(own) >= most:
                # one batch less than another rank: the end of the shard is split
                *head, last = batches
                batches = [*head, last[:-1], last[-1:]]
        made.append(batches)
    return made


def delivered_in_turns(deal: Deal, count: int, rank: int, after: int = 0) -> list[list[int]]:
    """What a rank's consumer gets: a batch of each of its workers in turns, as torch's loader does."""
    queues = []
    for turn in range(deal.workers):
        cuts = deal.cuts(count, rank, (turn + after) % deal.workers, after).tolist()
        queues.append([list(range(a, b)) for a, b in itertools.pairwise(cuts)])
    made, turn = [], 0
    while any(queues):
        if not queues[turn % deal.workers]:  # an idle worker before the end would upset the turns
            raise AssertionError("a worker ran out before its turn")
        made.append(queues[turn % deal.workers].pop(0))
        turn += 1
    return made


@given(deals, st.integers(0, 60))
def test_each_rank_is_dealt_its_contiguous_shard_in_batches(deal, count):
    by_hand = dealt_by_hand(deal, count)
    for rank in range(deal.ranks):
        batches = delivered_in_turns(deal, count, rank)
        assert sorted(batches) == sorted(by_hand[rank])
        assert len(batches) == deal.batches(count, rank)
        if batches:  # the smaller ones come last
            assert batches[-1] == by_hand[rank][-1]
    whole = Counter(image for rank in by_hand for batch in rank for image in batch)
    if not deal.drop_last:
        extra = sum(whole.values()) - count
        match deal.uneven:
            case "keep":
                assert whole == Counter(range(count))
            case "pad":
                assert set(whole) == set(range(count))
                assert 0 <= extra < deal.ranks
            case "drop":
                assert max(whole.values(), default=1) == 1
                assert 0 <= -extra < deal.ranks


@given(deals, st.integers(0, 60))
def test_ranks_have_as_many_batches_as_one_another(deal, count):
    numbers = [deal.batches(count, rank) for rank in range(deal.ranks)]
    images = [sum(map(len, rank)) for rank in dealt_by_hand(deal, count)]
    if deal.uneven != "keep" or deal.drop_last:
        assert len(set(images)) == 1
    assert max(images) - min(images) <= 1
    most = max(numbers)
    assert numbers == [min(most, have) for have in images] if deal.batch > 1 else True


@given(deals, st.integers(0, 60))
def test_a_worker_reads_one_run_of_places(deal, count):
    for rank in range(deal.ranks):
        for worker in range(deal.workers):
            cuts = deal.cuts(count, rank, worker).tolist()
            assert cuts == sorted(cuts)
            assert all(0 < b - a <= deal.batch for a, b in itertools.pairwise(cuts))


@given(st.integers(1, 5), st.integers(1, 5), st.lists(st.integers(1, 9), min_size=1, max_size=12))
def test_windows_read_twice_are_no_more_than_the_edges_between_shards(ranks, workers, counts):
    order = epoch_order(counts, seed=1, window=12)
    deal = Deal(ranks, workers)
    everything = np.array([[0, len(order)]])
    reads = Counter()
    for rank in range(ranks):
        for worker in range(workers):
            cuts = deal.cuts(len(order), rank, worker).tolist()
            places = within(everything, cuts[0], cuts[-1])
            reads.update({stretch.window for stretch in order.stretches(places)})
    assert sum(reads.values()) - len(reads) <= ranks * workers - 1


# --- what is left ----------------------------------------------------------------------------------


def left_by_hand(count: int, legs: list[Leg]) -> list[int]:
    left = list(range(count))
    for leg in legs:
        seen = set()
        for rank, done in enumerate(leg.delivered):
            for batch in delivered_in_turns(leg.deal, len(left), rank)[:done]:
                seen.update(left[place] for place in batch)
        left = [place for place in left if place not in seen]
    return left


legs_of_a_run = st.lists(
    deals.flatmap(
        lambda deal: st.builds(
            Leg,
            st.just(deal),
            st.lists(st.integers(0, 12), min_size=deal.ranks, max_size=deal.ranks).map(tuple),
        )
    ),
    max_size=4,
)


@given(st.integers(0, 80), legs_of_a_run)
def test_what_remains_is_what_no_leg_delivered(count, legs):
    left = remaining(count, legs)
    places = [place for start, stop in left.tolist() for place in range(start, stop)]
    assert places == left_by_hand(count, legs)
    assert length(left) == len(places)
    assert (left[:, 0] < left[:, 1]).all()
    assert (left[1:, 0] > left[:-1, 1]).all(), "neighbours are one interval"
    assert len(left) <= 1 + sum(leg.deal.ranks * leg.deal.workers for leg in legs)


@given(st.integers(0, 80), legs_of_a_run, deals)
def test_a_run_resumed_by_anyone_sees_every_place_once(count, legs, last):
    """Whatever ranks and workers ran the legs, and wherever they stopped."""
    kept = [Leg(replace(leg.deal, uneven="keep", drop_last=False), leg.delivered) for leg in legs]
    last = replace(last, uneven="keep", drop_last=False)
    seen = Counter()
    for number, leg in enumerate([*kept, Leg(last, (10**6,) * last.ranks)]):
        left = remaining(count, kept[:number])
        for rank in range(leg.deal.ranks):
            batches = delivered_in_turns(leg.deal, length(left), rank)[: leg.delivered[rank]]
            for batch in batches:
                for start, stop in within(left, batch[0], batch[-1] + 1).tolist():
                    seen.update(range(start, stop))
    assert seen == Counter(range(count))


@given(deals, st.integers(0, 60), st.integers(0, 30))
def test_the_same_ranks_and_workers_go_on_where_they_stopped(deal, count, after):
    for rank in range(deal.ranks):
        whole = delivered_in_turns(deal, count, rank)
        assert delivered_in_turns(deal, count, rank, after) == whole[after:]


@given(st.integers(0, 80), legs_of_a_run, deals)
def test_batches_are_the_places_between_their_cuts(count, legs, deal):
    left = remaining(count, legs)
    places = [place for start, stop in left.tolist() for place in range(start, stop)]
    cuts = deal.cuts(length(left), 0, 0)
    found = [
        [place for start, stop in batch.tolist() for place in range(start, stop)]
        for batch in batches_of(left, cuts)
    ]
    assert found == [places[a:b] for a, b in itertools.pairwise(cuts)]


def test_a_state_of_many_ranks_is_small_and_quick():
    legs = [Leg(Deal(1024, 8, 32), (40,) * 1024) for _ in range(3)]
    left = remaining(10_000_000, legs)
    assert length(left) == 10_000_000 - 3 * 1024 * 40 * 32


# --- bad input -------------------------------------------------------------------------------------


@given(deals, st.lists(st.integers(0, 9), min_size=4, max_size=4))
def test_a_leg_survives_json(deal, delivered):
    leg = Leg(deal, tuple(delivered[: deal.ranks]))
    assert Leg.from_dict(leg.to_dict()) == leg


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"ranks": 0}, "out-of-range"),
        ({"batch": 0}, "out-of-range"),
        ({"uneven": "share"}, "invalid-value"),
        ({"delivered": [1, 2, 3]}, "invalid-value"),
        ({"delivered": [-1]}, "invalid-value"),
        ({"delivered": ["x"]}, "invalid-value"),
        ({"speed": 3}, "invalid-value"),
    ],
)
def test_a_damaged_leg_is_refused(changes, code):
    made = Leg(Deal(), (1,)).to_dict() | changes
    with refused(code):
        Leg.from_dict(made)
