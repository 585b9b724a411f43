"""`count_token_paths`: how many token sequences an automaton accepts, exactly."""

from __future__ import annotations

from collections import defaultdict
from typing import Literal

import numpy as np

from holdfast.errors import InputError
from holdfast.lm.query.tokens.automaton import TokenAutomaton

Steps = dict[int, list[tuple[int, int]]]
"""State -> (state that follows, tokens that lead there)."""


def count_token_paths(
    automaton: TokenAutomaton, longest: int | None = None
) -> tuple[int | Literal["infinite"], tuple[tuple[int, int], ...]]:
    """The number of token sequences from the start to a final state.

    Tokens that lead from one state to the same state are counted together, so that the work depends on the
    states and not on the vocabulary. Numbers are Python's, of any size.

    Args:
        automaton: of finitely many states.
        longest: lengths of sequences to tell, in tokens; up to the longest sequence, if not given.

    Returns:
        The number of all sequences, or ``"infinite"``; and (length, number of sequences of that length) for
        every length that has some, up to `longest`. Without `longest`, an infinite number has no lengths.

    Raises:
        InputError: if `longest` is negative.
    """
    if longest is not None and longest < 0:
        raise InputError(
            "no length of token sequences",
            code="invalid-value",
            found=str(longest),
            expected="0 or more",
        )
    if automaton.start < 0:
        return 0, ()
    steps = _useful_steps(automaton)
    order = _topological_order(steps)
    if order is None:
        lengths = () if longest is None else _by_length(automaton, steps, longest)
        return "infinite", lengths
    onward: dict[int, int] = {}
    for state in reversed(order):
        onward[state] = int(automaton.is_final(state)) + sum(
            number * onward[follows] for follows, number in steps[state]
        )
    most = len(steps) - 1 if longest is None else min(longest, len(steps) - 1)
    return onward.get(automaton.start, 0), _by_length(automaton, steps, most)


def _useful_steps(automaton: TokenAutomaton) -> Steps:
    """Transitions of the states that are on a path from the start to acceptance."""
    steps: Steps = {}
    before: dict[int, list[int]] = defaultdict(list)
    waiting = [automaton.start]
    while waiting:
        state = waiting.pop()
        if state in steps:
            continue
        steps[state] = _steps(automaton, state)
        for follows, _ in steps[state]:
            before[follows].append(state)
            waiting.append(follows)
    useful: set[int] = set()
    waiting = [state for state in steps if automaton.is_final(state)]
    while waiting:
        state = waiting.pop()
        if state not in useful:
            useful.add(state)
            waiting += before[state]
    return {
        state: [(follows, number) for follows, number in steps[state] if follows in useful]
        for state in steps
        if state in useful
    }


def _steps(automaton: TokenAutomaton, state: int) -> list[tuple[int, int]]:
    counted = getattr(automaton, "steps", None)
    follows, number = (
        np.unique(automaton.arcs(state)[1], return_counts=True)
        if counted is None
        else counted(state)
    )
    return list(zip(follows.tolist(), number.tolist(), strict=True))


def _topological_order(steps: Steps) -> list[int] | None:
    """The states, each in front of those that follow it; None if there is a cycle."""
    entries = dict.fromkeys(steps, 0)
    for row in steps.values():
        for follows, _ in row:
            entries[follows] += 1
    order = [state for state, number in entries.items() if not number]
    for state in order:
        for follows, _ in steps[state]:
            entries[follows] -= 1
            if not entries[follows]:
                order.append(follows)
    return order if len(order) == len(steps) else None


def _by_length(
    automaton: TokenAutomaton, steps: Steps, longest: int
) -> tuple[tuple[int, int], ...]:
    """(length, sequences of that length), lengths without any left out."""
    lengths = []
    reached = {automaton.start: 1} if automaton.start in steps else {}
    for length in range(longest + 1):
        number = sum(count for state, count in reached.items() if automaton.is_final(state))
        if number:
            lengths.append((length, number))
        onward: dict[int, int] = defaultdict(int)
        for state, count in reached.items():
            for follows, tokens in steps[state]:
                onward[follows] += tokens * count
        reached = onward
        if not reached:
            break
    return tuple(lengths)
