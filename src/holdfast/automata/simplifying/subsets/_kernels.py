"""The compiled subset construction."""

from __future__ import annotations

from typing import Any

import numpy as np

from holdfast.automata._kernels import compiled, plus
from holdfast.automata.simplifying._kernels import grown, mixed

# How a construction ended.
DONE, TOO_MANY_STATES, TWO_OUTPUTS, LAGGING = 0, 1, 2, 3

LONGEST = 10_000  # labels that an output may lag behind


@compiled
def appended(strings: Any, table: Any, count: Any, string: int, label: int) -> tuple[Any, Any, int]:
    """The string that is `string` and one label more.

    Strings are nodes of a tree: strings[node] = (parent, last label, length), node 0 is the empty one.
    `table` finds the node of (parent, label) by open addressing; count[0] is the number of nodes.
    """
    slot = np.int64(mixed(np.int64(string) * 0x100000000 + label) & np.uint64(len(table) - 1))
    while table[slot]:
        node = table[slot]
        if strings[node, 0] == string and strings[node, 1] == label:
            return strings, table, node
        slot = (slot + 1) & (len(table) - 1)
    node = count[0]
    count[0] += 1
    if node == len(strings):
        longer = np.empty((2 * node, 3), np.int32)
        longer[:node] = strings
        strings = longer
    strings[node, 0] = string
    strings[node, 1] = label
    strings[node, 2] = strings[string, 2] + 1
    table[slot] = node
    if 2 * node > len(table):
        table = np.zeros(2 * len(table), np.int32)
        for old in range(1, node + 1):
            key = np.int64(strings[old, 0]) * 0x100000000 + strings[old, 1]
            slot = np.int64(mixed(key) & np.uint64(len(table) - 1))
            while table[slot]:
                slot = (slot + 1) & (len(table) - 1)
            table[slot] = old
    return strings, table, node


@compiled
def common_prefix(strings: Any, first: int, second: int) -> int:
    """The longest string with which both begin."""
    while first != second:
        if strings[first, 2] >= strings[second, 2]:
            first = strings[first, 0]
        else:
            second = strings[second, 0]
    return first


@compiled
def spelled(strings: Any, string: int, prefix: int) -> Any:
    """The labels i32[*] of a string after its prefix."""
    labels = np.empty(strings[string, 2] - strings[prefix, 2], np.int32)
    for at in range(len(labels) - 1, -1, -1):
        labels[at] = strings[string, 1]
        string = strings[string, 0]
    return labels


@compiled
def without_prefix(
    strings: Any, table: Any, count: Any, string: int, prefix: int
) -> tuple[Any, Any, int]:
    """The string that is left of a string when a prefix is taken away."""
    node = 0
    for label in spelled(strings, string, prefix):
        strings, table, node = appended(strings, table, count, node, label)
    return strings, table, node


@compiled
def _slots_of(hashes: Any, count: int, size: int) -> Any:
    """A table of open addressing for the subsets 0 to count - 1; a slot holds subset + 1, or 0."""
    slots = np.zeros(size, np.int32)
    for subset in range(count):
        slot = np.int64(hashes[subset] & np.uint64(size - 1))
        while slots[slot]:
            slot = (slot + 1) & (size - 1)
        slots[slot] = subset + 1
    return slots


@compiled
def construct(
    offsets: Any,
    label: Any,
    olabel: Any,
    nextstate: Any,
    weight: Any,
    final: Any,
    start: int,
    labels: int,
    code: int,
    delta: float,
    max_states: int,
) -> tuple[Any, ...]:
    """The subsets that the start reaches, and the arcs between them; breadth first, labels ascending.

    A subset is a list of (state, string that output still owes, residual cost); its order is that in which
    the states were found, and two are equal whatever their orders.

    Args:
        offsets: i64[V + 1].
        label: i32[E] 0 to labels - 1, in any order.
        olabel: i32[E] output labels, or none for an acceptor.
        nextstate: i32[E].
        weight: f64[E] costs; none is infinite.
        final: f64[V] costs; infinite where a state is not final.
        start: the start state.
        labels: how many labels there are.
        code: how costs add.
        delta: residual costs that round to the same multiple of this are equal.
        max_states: how many subsets there may be.

    Returns:
        How it ended; i64[S + 1], i32[A] label, i32[A] string, i32[A] nextstate, f64[A] cost; i32[S] final
        string, f64[S] final cost; strings i32[N, 3]; and, for TWO_OUTPUTS, the two strings i64[2].
    """
    states = len(offsets) - 1
    transduces = len(olabel) > 0
    strings = np.zeros((16, 3), np.int32)
    table = np.zeros(32, np.int32)
    nodes = np.ones(1, np.int64)
    clash = np.zeros(2, np.int64)

    # Subsets: their elements lie one after another.
    begin = np.zeros(1024, np.int64)
    hashes = np.zeros(1024, np.uint64)
    slots = np.zeros(4096, np.int32)
    state_of = np.zeros(4096, np.int32)
    string_of = np.zeros(4096, np.int32)
    residual = np.zeros(4096, np.float64)
    # The arcs between them.
    made_offsets = np.zeros(1025, np.int64)
    made_label = np.zeros(4096, np.int32)
    made_string = np.zeros(4096, np.int32)
    made_next = np.zeros(4096, np.int32)
    made_weight = np.zeros(4096, np.float64)
    made_final = np.zeros(1024, np.float64)
    made_final_string = np.zeros(1024, np.int32)
    # Scratch: arcs of one subset in buckets by label; where a state stands in the subset being made.
    bucket = np.zeros(labels + 1, np.int64)
    touched = np.empty(labels, np.int32)
    waiting_next = np.zeros(1024, np.int32)
    waiting_string = np.zeros(1024, np.int32)
    waiting_weight = np.zeros(1024, np.float64)
    seen = np.zeros(states, np.int64)
    where = np.zeros(states, np.int64)
    stamp = 0

    count = 1
    begin[1] = 1
    state_of[0] = start
    hashes[0] = mixed(mixed(np.int64(start)))
    slots[np.int64(hashes[0] & np.uint64(len(slots) - 1))] = 1
    arcs = 0
    rc = DONE
    subset = 0
    while subset < count:
        # The final weight, and how many arcs there are of each label.
        total = np.inf
        owed = -1
        used = 0
        gathered = 0
        for at in range(begin[subset], begin[subset + 1]):
            state = state_of[at]
            if final[state] != np.inf:
                total = plus(code, total, residual[at] + final[state])
                if owed >= 0 and owed != string_of[at]:
                    rc = TWO_OUTPUTS
                    clash[0], clash[1] = owed, string_of[at]
                owed = string_of[at]
            gathered += offsets[state + 1] - offsets[state]
            for arc in range(offsets[state], offsets[state + 1]):
                if bucket[label[arc]] == 0:
                    touched[used] = label[arc]
                    used += 1
                bucket[label[arc]] += 1
        made_final[subset] = total
        made_final_string[subset] = max(owed, 0)
        if rc != DONE:
            break
        listed = touched[:used]
        if 8 * used < labels:
            listed.sort()
        else:
            used = 0
            for one in range(labels):
                if bucket[one]:
                    touched[used] = one
                    used += 1
        # Buckets by label: bucket[label] becomes where the next arc of it is written.
        behind = 0
        for one in listed:
            size = bucket[one]
            bucket[one] = behind
            behind += size
        waiting_next = grown(waiting_next, gathered)
        waiting_string = grown(waiting_string, gathered)
        waiting_weight = grown(waiting_weight, gathered)
        for at in range(begin[subset], begin[subset + 1]):
            state = state_of[at]
            for arc in range(offsets[state], offsets[state + 1]):
                to = bucket[label[arc]]
                bucket[label[arc]] += 1
                waiting_next[to] = nextstate[arc]
                waiting_weight[to] = residual[at] + weight[arc]
                if transduces:
                    string = string_of[at]
                    if olabel[arc]:
                        strings, table, string = appended(
                            strings, table, nodes, string, olabel[arc]
                        )
                        if strings[string, 2] > LONGEST:
                            rc = LAGGING
                    waiting_string[to] = string
        made_label = grown(made_label, arcs + used)
        made_string = grown(made_string, arcs + used)
        made_next = grown(made_next, arcs + used)
        made_weight = grown(made_weight, arcs + used)
        position = 0
        for one in listed:
            # The states that this label leads to, each with the sum over its arcs.
            top = begin[count]
            end = bucket[one]
            bucket[one] = 0
            state_of = grown(state_of, top + end - position)
            string_of = grown(string_of, top + end - position)
            residual = grown(residual, top + end - position)
            stamp += 1
            size = 0
            prefix = waiting_string[position]
            divisor = np.inf
            for item in range(position, end):
                state = waiting_next[item]
                divisor = plus(code, divisor, waiting_weight[item])
                if seen[state] != stamp:
                    seen[state] = stamp
                    where[state] = top + size
                    state_of[top + size] = state
                    string_of[top + size] = waiting_string[item]
                    residual[top + size] = waiting_weight[item]
                    size += 1
                else:
                    at = where[state]
                    residual[at] = plus(code, residual[at], waiting_weight[item])
                    if string_of[at] != waiting_string[item]:
                        rc = TWO_OUTPUTS
                        clash[0], clash[1] = string_of[at], waiting_string[item]
                if transduces:
                    prefix = common_prefix(strings, prefix, waiting_string[item])
            position = end
            if rc != DONE:
                break
            # What all have in common goes to the arc; the rest stays owed.
            hashed = np.uint64(0)
            for at in range(top, top + size):
                residual[at] -= divisor
                if prefix:
                    strings, table, string_of[at] = without_prefix(
                        strings, table, nodes, string_of[at], prefix
                    )
                key = mixed(np.int64(string_of[at]) * 0x100000000 + state_of[at])
                hashed += mixed(key + np.uint64(np.int64(np.floor(residual[at] / delta + 0.5))))
            # Is there such a subset?
            found = -1
            slot = np.int64(hashed & np.uint64(len(slots) - 1))
            while slots[slot]:
                other = slots[slot] - 1
                if hashes[other] == hashed and begin[other + 1] - begin[other] == size:
                    same = True
                    for at in range(begin[other], begin[other + 1]):
                        if seen[state_of[at]] != stamp:
                            same = False
                            break
                        mine = where[state_of[at]]
                        if string_of[at] != string_of[mine] or np.floor(
                            residual[at] / delta + 0.5
                        ) != np.floor(residual[mine] / delta + 0.5):
                            same = False
                            break
                    if same:
                        found = other
                        break
                slot = (slot + 1) & (len(slots) - 1)
            if found < 0:
                found = count
                if count == max_states:
                    rc = TOO_MANY_STATES
                    break
                hashes = grown(hashes, count + 1)
                begin = grown(begin, count + 2)
                made_final = grown(made_final, count + 1)
                made_final_string = grown(made_final_string, count + 1)
                made_offsets = grown(made_offsets, count + 2)
                hashes[count] = hashed
                slots[slot] = count + 1
                count += 1
                begin[count] = top + size
                if 2 * count > len(slots):
                    slots = _slots_of(hashes, count, 4 * len(slots))
            made_label[arcs] = one
            made_string[arcs] = prefix
            made_next[arcs] = found
            made_weight[arcs] = divisor
            arcs += 1
        if rc != DONE:
            break
        subset += 1
        made_offsets[subset] = arcs
    return (
        rc,
        made_offsets[: count + 1],
        made_label[:arcs],
        made_string[:arcs],
        made_next[:arcs],
        made_weight[:arcs],
        made_final_string[:count],
        made_final[:count],
        strings,
        clash,
    )
