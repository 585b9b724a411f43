"""What policies ask for, and what the tuner's hysteresis makes of it."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from holdfast.data.records.tuning.policies import (
    Evidence,
    Fixed,
    GradientCosine,
    LossPlateau,
    MsSsim,
)
from holdfast.data.records.tuning.scores import Score, exactly_alike
from holdfast.data.records.tuning.tuner import Tuner
from holdfast.errors import InputError

NAN = math.nan


class Told:
    """A probe that gives the scores it was told, one list a call; None where none may be asked for."""

    def __init__(self, *lists, error=0.0):
        self.lists, self.error = list(lists), error

    def scores(self, fidelities, full):
        values = self.lists.pop(0)
        made = [Score(g, values[g - 1], self.error, 9) for g in fidelities if g != full]
        return (*made, exactly_alike(full))


def scored(*values, error=0.0):
    return (
        *(Score(g, value, error, 9) for g, value in enumerate(values, 1)),
        exactly_alike(len(values) + 1),
    )


@pytest.mark.parametrize(
    ("values", "current", "needed", "allowed"),
    [
        ((0.9, 0.95, 0.99, 1.0), 5, 1, 1),
        ((0.5, 0.81, 0.99, 1.0), 5, 2, 3),  # 0.81 passes 0.8 but not the margin
        ((0.5, 0.8, 0.8, 0.8), 5, 5, 5),  # above, not at
        ((0.1, 0.2, 0.3, 0.4), 5, 5, 5),
        ((NAN, NAN, NAN, NAN), 5, 5, 5),
        ((0.9, 0.1, 0.1, 0.1), 5, 1, 1),  # the lowest, as the method says
        ((0.9, 0.1, 0.1, 0.9), 3, 4, 4),  # but one that fails is left upwards
        ((0.9, 0.1, 0.9, 0.9), 3, 1, 1),
    ],
)
def test_the_lowest_fidelity_above_the_threshold(values, current, needed, allowed):
    wish = GradientCosine(0.8, 0.02).wish(Evidence(5, current, scored(*values)))
    assert (wish.needed, wish.allowed) == (needed, allowed)


def test_a_careful_policy_and_the_first_choice_go_only_to_what_is_sure():
    doubtful, unknown = scored(0.85, 0.97, error=0.02), scored(0.85, 0.97, error=None)
    for policy, current, at_doubtful, at_unknown in [
        (GradientCosine(0.8, 0.0), 3, 1, 1),
        (GradientCosine(0.8, 0.0), None, 2, 3),
        (GradientCosine(0.8, 0.0, sure=True), 3, 2, 3),
    ]:
        assert policy.wish(Evidence(3, current, doubtful)).allowed == at_doubtful
        assert policy.wish(Evidence(3, current, unknown)).allowed == at_unknown


@pytest.mark.parametrize(
    ("quality", "threshold", "chosen"),
    [((0.7, 0.9, 0.96, 1.0), 0.95, 3), ((0.7, 0.9, 0.96, 1.0), 0.96, 3), ((0.1, 0.2), 0.95, 2)],
)
def test_mssim_is_chosen_once_and_for_all(quality, threshold, chosen):
    tuner = Tuner(len(quality), 6, policy=MsSsim(quality, threshold), last_full=1)
    assert [tuner.fidelity(epoch) for epoch in range(6)] == [chosen] * 5 + [len(quality)]


def test_a_quality_table_of_another_dataset_is_refused():
    with refused("conflict"):
        Tuner(5, 6, policy=MsSsim((0.5, 1.0))).fidelity(0)
    with refused("no-data"):
        Tuner(2, 6, policy=MsSsim((NAN, NAN))).fidelity(0)


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ([3, 2, 1, 0.5, 0.2, 0.1], [1, 1, 1, 1, 1, 1, 1]),
        ([3, 3, 3, 3, 3, 3], [1, 1, 1, 2, 2, 2, 3]),  # 1 best, 2 without: raised; again
        ([3, 2, 2, 2, 1, 0.5], [1, 1, 1, 1, 2, 2, 2]),
        ([3, 2.999, 2.998, 1, 1, 1], [1, 1, 1, 2, 2, 2, 3]),  # less than 1 % is no gain
        ([3, NAN, 1, 1, 1, 1], [1, 1, 3, 3, 3, 3, 3]),
    ],
)
def test_the_fidelity_rises_when_the_loss_stops_falling(losses, expected):
    tuner = Tuner(3, 7, policy=LossPlateau(patience=2), last_full=0)
    assert [tuner.fidelity(0)] + [
        tuner.fidelity(epoch, loss) for epoch, loss in enumerate(losses, 1)
    ] == expected


def run(lists, *, bound=None, **settings):
    settings = {"last_full": 0, "every": 1, "patience": 2} | settings
    tuner = Tuner(4, len(lists), Told(*lists), storage_bound=bound, **settings)
    return [tuner.fidelity(epoch) for epoch in range(len(lists))], tuner


LOW, MIDDLE, HIGH = (0.9, 0.9, 0.9), (0.5, 0.9, 0.9), (0.5, 0.5, 0.5)
NARROW = (0.81, 0.9, 0.9)


@pytest.mark.parametrize(
    ("lists", "expected"),
    [
        ([LOW, LOW, LOW], [1, 1, 1]),
        ([LOW, MIDDLE, HIGH], [1, 2, 4]),  # up at once
        ([HIGH, LOW, LOW, LOW], [4, 4, 1, 1]),  # down after patience
        ([HIGH, LOW, MIDDLE], [4, 4, 2]),  # to the highest that was allowed
        ([HIGH, LOW, HIGH, LOW, LOW], [4, 4, 4, 4, 1]),  # in a row
        ([MIDDLE, NARROW, NARROW, NARROW], [2, 2, 2, 2]),  # not within the margin
        ([LOW, NARROW, NARROW], [1, 1, 1]),  # within the margin one stays
        ([LOW, HIGH, LOW, HIGH, LOW, HIGH], [1, 4, 4, 4, 4, 4]),  # no swinging
    ],
)
def test_up_at_once_down_with_a_margin_after_patience(lists, expected):
    assert run(lists)[0] == expected


def test_a_fidelity_is_lowered_only_while_storage_binds():
    answers = iter([False, True, True, False, True, True])
    found, tuner = run(
        [MIDDLE, LOW, LOW, LOW],  # two probes are spared: full, and nothing to lower
        bound=lambda: next(answers),
    )
    assert found == [4, 2, 2, 2]
    assert not tuner.history[0].scores
    assert tuner.history[3].scores
    assert "storage" in tuner.history[3].reason


def test_a_wait_that_was_not_measured_is_not_called_none():
    answers = iter([None, False, True])
    found, tuner = run([MIDDLE, LOW, LOW], bound=lambda: next(answers))
    assert [one.bound for one in tuner.history] == [None, False, True]
    assert found[:2] == [4, 4]
    assert "not known" in tuner.history[0].reason


def test_a_fidelity_is_raised_even_when_storage_does_not_bind():
    answers = iter([True, False])
    assert run([LOW, HIGH], bound=lambda: next(answers))[0] == [1, 4]


def test_probes_are_due_every_kth_epoch_between_warm_up_and_the_last():
    tuner = Tuner(4, 12, Told(*[LOW] * 3), every=3, warmup=2, last_full=2)
    found = [tuner.fidelity(epoch) for epoch in range(12)]
    assert found == [4, 4, *[1] * 8, 4, 4]
    assert [one.epoch for one in tuner.history if one.scores] == [2, 5, 8]


@given(
    st.lists(
        st.tuples(*[st.floats(-1, 1)] * 3) | st.just((NAN, NAN, NAN)), min_size=1, max_size=12
    ),
    st.integers(1, 4),
)
def test_after_every_probe_the_chosen_fidelity_passes(lists, patience):
    found, tuner = run(lists, patience=patience)
    for fidelity, choice in zip(found, tuner.history, strict=True):
        assert fidelity == 4 or choice.scores[fidelity - 1].value > 0.8
    steps = [g for g, before in zip(found[1:], found, strict=False) if g < before]
    assert len(steps) <= len(lists) / patience


def test_an_epoch_asked_again_keeps_its_choice():
    tuner = Tuner(4, 3, Told(LOW), every=2, last_full=0)
    assert [tuner.fidelity(0), tuner.fidelity(0), tuner.fidelity(1), tuner.fidelity(0)] == [1] * 4
    assert len(tuner.history) == 2


@given(st.lists(st.sampled_from([LOW, MIDDLE, NARROW, HIGH]), min_size=2, max_size=10), st.data())
def test_a_resumed_tuner_goes_on_as_if_nothing_had_been(lists, data):
    stop = data.draw(st.integers(1, len(lists) - 1))
    straight, whole = run(lists)
    settings = {"every": 1, "last_full": 0}
    before = Tuner(4, len(lists), Told(*lists[:stop]), **settings)
    found = [before.fidelity(epoch) for epoch in range(stop)]
    after = Tuner(4, len(lists), Told(*lists[stop:]), **settings)
    after.load_state_dict(json.loads(json.dumps(before.state_dict(), allow_nan=False)))
    found += [after.fidelity(epoch) for epoch in range(stop, len(lists))]
    assert found == straight
    assert [one.to_dict() for one in after.history] == [one.to_dict() for one in whole.history]


def test_a_checkpoint_of_another_dataset_is_refused():
    state = run([HIGH])[1].state_dict()
    with refused("conflict"):
        Tuner(3, 5, Told()).load_state_dict(state)


def test_a_fixed_fidelity_stays_unless_it_does_not_exist():
    tuner = Tuner(4, 3, policy=Fixed(2), last_full=0)
    assert [tuner.fidelity(epoch) for epoch in range(3)] == [2, 2, 2]
    with refused("out-of-range"):
        Tuner(4, 3, policy=Fixed(5)).fidelity(0)


@pytest.mark.parametrize(
    "settings",
    [
        {"epochs": 0},
        {"every": 0},
        {"patience": 0},
        {"warmup": -1},
        {"probe": None},
    ],
)
def test_settings_out_of_range_are_refused(settings):
    with pytest.raises(InputError):
        Tuner(**({"groups": 4, "epochs": 5, "probe": Told()} | settings))


@pytest.mark.parametrize(
    "make",
    [
        lambda: GradientCosine(threshold=1.0),
        lambda: GradientCosine(threshold=NAN),
        lambda: GradientCosine(margin=-0.1),
        lambda: LossPlateau(patience=0),
        lambda: LossPlateau(start=0),
    ],
)
def test_policies_out_of_range_are_refused(make):
    with pytest.raises(InputError):
        make()
