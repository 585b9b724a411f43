"""The compiled subset construction."""

from __future__ import annotations

from typing import Any

import numpy as np

from holdfast.automata._kernels import compiled, plus
from holdfast.automata.simplifying._kernels import mixed, sort_in_place
from holdfast.automata.simplifying.string_kernels import (
    LONGEST,
    appended,
    common_prefix,
    without_prefix,
)
from holdfast.automata.simplifying.subsets.room import Machine, Scratch, Subsets

# How a construction ended.
DONE, FULL, TOO_MANY_STATES, TWO_OUTPUTS, LAGGING = range(5)


# Counters of `advance`: what is used, what room the next subset needs, and two strings in conflict.
DONE_SUBSETS, MADE_SUBSETS, SETS, GATHERED, LABELS, FIRST, SECOND = range(7)
COUNTERS = 7


@compiled
def slots_of_subsets(hashed: Any, count: int, size: int) -> Any:
    """The table of open addressing for subsets 0 to count - 1."""
    slots = np.zeros(size, np.int32)
    for subset in range(count):
        slot = np.int64(hashed[subset] & np.uint64(size - 1))
        while slots[slot]:
            slot = (slot + 1) & (size - 1)
        slots[slot] = subset + 1
    return slots


@compiled
def rounded(cost: float, delta: float) -> Any:
    """The multiple i64 of delta that a cost lies next to."""
    return np.int64(np.floor(cost / delta + 0.5))


@compiled
def hash_of(state: int, string: int, rounded: int) -> Any:
    """The hash u64 of one element; that of a subset is the sum over its elements."""
    key = mixed(np.int64(string) * 0x100000000 + state)
    return mixed(key + np.uint64(rounded))


@compiled
def _count_labels(
    offsets: Any, label: Any, states: Any, first: int, end: int, bucket: Any, touched: Any
) -> tuple[int, int]:
    """Count the arcs of a subset by label into `bucket`; its labels, ascending, into `touched`.

    Its elements are states[first:end]; slices would be counted references.

    Returns:
        How many labels there are, and how many arcs.
    """
    used = 0
    gathered = 0
    for at in range(first, end):
        state = states[at]
        gathered += offsets[state + 1] - offsets[state]
        for arc in range(offsets[state], offsets[state + 1]):
            if bucket[label[arc]] == 0:
                touched[used] = label[arc]
                used += 1
            bucket[label[arc]] += 1
    if used < 4 or 8 * used < len(bucket):
        sort_in_place(touched, used)
    else:
        used = 0
        for one in range(len(bucket)):
            if bucket[one]:
                touched[used] = one
                used += 1
    return used, gathered


@compiled
def _finish(
    final: Any,
    states: Any,
    strings: Any,
    costs: Any,
    first: int,
    end: int,
    code: int,
    counters: Any,
) -> tuple[int, float, int]:
    """The outcome, the final cost of a subset, and the output that is owed there."""
    total = np.inf
    owed = -1
    for at in range(first, end):
        ends = final[states[at]]
        if ends == np.inf:
            continue
        total = plus(code, total, costs[at] + ends)
        if owed >= 0 and owed != strings[at]:
            counters[FIRST], counters[SECOND] = owed, strings[at]
            return TWO_OUTPUTS, total, owed
        owed = strings[at]
    return DONE, total, max(owed, 0)


@compiled
def advance(
    machine: Machine,
    subsets: Subsets,
    scratch: Scratch,
    counters: Any,
    code: int,
    delta: float,
    max_states: int,
) -> int:
    """Continue the construction, breadth first and labels ascending, until it is done or an array is full.

    A subset that does not fit is started again later; its earlier results are found, not duplicated. The
    loop over the arcs avoids calls with many array arguments, where Numba counts references.

    Args:
        machine: the input machine.
        subsets: the subsets so far, with spare capacity.
        scratch: working memory.
        counters: i64[COUNTERS], continued.
        code: how costs add.
        delta: residual costs that round to the same multiple of this are equal.
        max_states: maximum number of subsets.

    Returns:
        DONE, or FULL with the required capacity in the counters, or the reason why it cannot continue.
    """
    offsets, label, olabel, nextstate, weight, final = machine
    (
        begin,
        arcs_begin,
        hashes,
        made_final,
        made_final_string,
        states,
        strings,
        costs,
        made_label,
        made_string,
        made_nextstate,
        made_weight,
        slots,
        tree,
        tree_slots,
        tree_count,
    ) = subsets
    bucket, touched, target, target_string, target_cost, seen, where = scratch
    transduces = len(olabel) > 0
    count = counters[MADE_SUBSETS]
    stamp = counters[SETS]
    rc = DONE
    subset = counters[DONE_SUBSETS]
    while subset < count:
        first, end = begin[subset], begin[subset + 1]
        arcs = arcs_begin[subset]
        # 1. How many labels leave the subset, and how many arcs have each: a counting sort.
        used, gathered = _count_labels(offsets, label, states, first, end, bucket, touched)
        if (
            count + used >= len(hashes)
            or 2 * (count + used) > len(slots)
            or begin[count] + gathered > len(states)
            or arcs + used > len(made_label)
            or gathered > len(target)
        ):
            counters[LABELS], counters[GATHERED] = used, gathered
            rc = FULL
        else:
            rc, made_final[subset], made_final_string[subset] = _finish(
                final, states, strings, costs, first, end, code, counters
            )
        # 2. Gather the targets by label, with the output and the cost so far.
        # What the arcs lead to, by label; `bucket` is then where each label ends.
        behind = 0
        for at in range(used):
            size = bucket[touched[at]]
            bucket[touched[at]] = behind
            behind += size
        for at in range(first, end):
            if rc != DONE:
                break
            state = states[at]
            for arc in range(offsets[state], offsets[state + 1]):
                to = bucket[label[arc]]
                bucket[label[arc]] = to + 1
                target[to] = nextstate[arc]
                target_cost[to] = costs[at] + weight[arc]
                if transduces:
                    string: Any = np.int64(strings[at])
                    if olabel[arc]:
                        string = appended(tree, tree_slots, tree_count, string, olabel[arc])
                        if string < 0:
                            rc = FULL
                            break
                        if tree[string, 2] > LONGEST:
                            rc = LAGGING
                            break
                    target_string[to] = string
        # 3. Per label: the common output and the least cost go on the arc, the rest stays with the new
        # subset.
        position = 0
        for at in range(used):
            one = touched[at]
            begun, position = position, bucket[one]
            bucket[one] = 0
            if rc != DONE:
                continue  # the buckets must be empty all the same
            # The subset is written behind the others: a sum for each state.
            top = begin[count]
            stamp += 1
            size = 0
            prefix: Any = np.int64(target_string[begun]) if transduces else np.int64(0)
            divisor = np.inf
            for item in range(begun, position):
                state = target[item]
                cost = target_cost[item]
                divisor = plus(code, divisor, cost)
                if seen[state] != stamp:
                    seen[state] = stamp
                    where[state] = top + size
                    states[top + size] = state
                    strings[top + size] = target_string[item] if transduces else 0
                    costs[top + size] = cost
                    size += 1
                else:
                    again = where[state]
                    costs[again] = plus(code, costs[again], cost)
                    if transduces and strings[again] != target_string[item]:
                        counters[FIRST], counters[SECOND] = strings[again], target_string[item]
                        rc = TWO_OUTPUTS
                if transduces:
                    prefix = common_prefix(tree, prefix, target_string[item])
            # What all have in common goes to the arc; the rest stays owed.
            hashed = np.uint64(0)
            for mine in range(top, top + size):
                costs[mine] -= divisor
                if prefix:
                    string = without_prefix(tree, tree_slots, tree_count, strings[mine], prefix)
                    strings[mine] = string
                    if string < 0:
                        rc = FULL
                hashed += hash_of(states[mine], strings[mine], rounded(costs[mine], delta))
            if rc != DONE:
                continue
            # Is there such a subset? `seen` tells whether a state is among these, `where` its element.
            found: Any = -1
            slot = np.int64(hashed & np.uint64(len(slots) - 1))
            while slots[slot] and found < 0:
                other = np.int64(slots[slot]) - 1
                if hashes[other] == hashed and begin[other + 1] - begin[other] == size:
                    found = other
                    for old in range(begin[other], begin[other + 1]):
                        mine = where[states[old]]
                        if (
                            seen[states[old]] != stamp
                            or strings[old] != strings[mine]
                            or rounded(costs[old], delta) != rounded(costs[mine], delta)
                        ):
                            found = -1
                            break
                if found < 0:
                    slot = (slot + 1) & (len(slots) - 1)
            if found < 0:
                if count == max_states:
                    rc = TOO_MANY_STATES
                    continue
                found = count
                hashes[count] = hashed
                slots[slot] = count + 1
                count += 1
                begin[count] = top + size
            made_label[arcs] = one
            made_string[arcs] = prefix
            made_nextstate[arcs] = found
            made_weight[arcs] = divisor
            arcs += 1
        if rc != DONE:
            break
        subset += 1
        arcs_begin[subset] = arcs
    counters[DONE_SUBSETS], counters[MADE_SUBSETS], counters[SETS] = subset, count, stamp
    return rc
