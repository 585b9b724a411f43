"""Compiled prefix beam search, and the alignment of its labels with frames."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.kernels import kernel
from holdfast.speech.recognize._tries import (
    LEAST,
    NONE,
    ROOT,
    SPACE,
    UNCOUNTED,
    Floats,
    Ints,
    Model,
    end_word,
    hotword_step,
    ngram_score,
    step,
    text_hash,
    word_hash,
)

USUAL_LENGTH = 6
"""Characters of a word from which on an unknown one costs more as long as it has not ended."""

Node = np.dtype(
    [
        # The prefix without its last label, that label, and its place in the beam (-1: not in it).
        *((name, np.int64) for name in ("parent", "label", "place")),
        # A longer prefix, the next one with the same parent (-1: none).
        *((name, np.int64) for name in ("child", "sibling")),
        # Where its words and characters are: in the lexicon (-1: no such word), n-grams, hotwords.
        *((name, np.int64) for name in ("lexicon", "history", "hotword")),
        # Hashes: of the word that has begun (0: none), of the last one that ended, of all that ended.
        *((name, np.int64) for name in ("word", "last_word", "text")),
        ("length", np.int64),  # characters of the word that has begun
        # What the words that ended add to the score, and what the word that has begun does.
        *((name, np.float64) for name in ("ended", "begun")),
        # ln P of its alignments that end in a blank, that end in its last label, and of both.
        *((name, np.float64) for name in ("blank", "last", "total")),
        # The same after the frame that is searched.
        *((name, np.float64) for name in ("next_blank", "next_last", "next_total")),
    ],
    align=True,
)
"""A prefix: a sequence of labels without blanks and repeats, as a node of the tree of prefixes."""


class Beam(NamedTuple):
    """A search between two frames; `search` continues it."""

    nodes: Any
    """[rows] The prefix tree, of `Node`; row 0 is the empty prefix."""
    count: int
    """Rows that are in use."""
    active: Ints
    """[survivors] Nodes, the best first."""
    spans: Ints
    """[frames, 2] Where the survivors of each frame are in the next two, from and to."""
    seen: Ints
    """[rows] Node."""
    seen_score: Floats
    """[rows] Total score, up to a constant of the frame."""


def new_beam(model: Model) -> Beam:
    """The search before the first frame: one prefix, the empty one."""
    nodes, start = np.zeros(1024, Node), model.hotwords.start
    for name in ("parent", "label", "child", "sibling"):
        nodes[name][ROOT] = NONE
    nodes["history"][ROOT], nodes["hotword"][ROOT] = model.history, start
    nodes["begun"][ROOT], nodes["last"][ROOT] = model.hotwords.promise[start], -np.inf
    spans, active = np.zeros((0, 2), np.int64), np.zeros(1, np.int64)
    return Beam(nodes, 1, active, spans, np.empty(1024, np.int64), np.empty(1024))


@kernel()
def _with_room(array: NDArray[Any], rows: int) -> NDArray[Any]:
    """The array, or a larger one that begins with it."""
    if rows <= array.size:
        return array
    larger = np.empty(2 * rows, array.dtype)
    for k in range(array.size):  # a slice would compile the message of its error
        larger[k] = array[k]
    return larger


@kernel(**UNCOUNTED)
def _log_add(a: float, b: float) -> float:
    high, low = max(a, b), min(a, b)
    # Where the lower one is below the last bit of the sum, both functions are saved.
    return high if low <= high - 40 else high + math.log1p(math.exp(low - high))


@kernel(**UNCOUNTED)
def _child(nodes: Any, parent: int, label: int) -> int:
    """The prefix with a further label, which may have left the beam; -1: it was never in it."""
    child = nodes[parent].child
    while child != NONE and nodes[child].label != label:
        child = nodes[child].sibling
    return child


@kernel(**UNCOUNTED)
def _extend(model: Model, prefix: Any, label: int, longer: Any) -> None:
    """Set what a prefix with a further label has, from `lexicon` to `begun`."""
    lexicon, history, hotword = prefix.lexicon, prefix.history, prefix.hotword
    word, last_word, text, ended = prefix.word, prefix.last_word, prefix.text, prefix.ended
    length = prefix.length
    for place in range(model.starts[label], model.starts[label + 1]):
        character = model.spelling[place]
        if character != SPACE:
            word, length = word_hash(word, character), length + 1
            if lexicon != NONE:
                lexicon = step(model.lexicon, lexicon, character)
            hotword = hotword_step(model.hotwords, hotword, character)
        elif word != 0:  # several spaces are one, those at the start none
            more, history, hotword = end_word(model, lexicon, history, hotword)
            lexicon, ended = ROOT, ended + more
            word, last_word, text, length = 0, word, text_hash(text, word), 0
    begun = model.hotwords.promise[hotword]
    if model.fused and lexicon == NONE:
        # Every frame keeps many spellings of a long unknown word; they must not crowd out known words.
        begun += model.unknown_score * max(1.0, length / USUAL_LENGTH)
    longer.lexicon, longer.history, longer.hotword = lexicon, history, hotword
    longer.word, longer.last_word, longer.text = word, last_word, text
    longer.ended, longer.begun, longer.length = ended, begun, length


@kernel(**UNCOUNTED)
def _above(score: Floats, count: int, least: float) -> int:
    """How many of the first scores are above one."""
    above = 0
    for k in range(count):
        above += score[k] > least
    return above


@kernel(**UNCOUNTED)
def _reached_by(score: Floats, count: int, width: int, low: float, top: float) -> float:
    """The score that `width` reach: halve the interval around it until no number is inside.

    As fast as NumPy's partition, which takes seconds to compile.
    """
    middle = (low + top) / 2
    while low < middle < top:
        if _above(score, count, middle) < width:
            top = middle
        else:
            low = middle
        middle = (low + top) / 2
    return top


@kernel(nogil=True)
def search(
    beam: Beam,
    log_probs: NDArray[np.float32],
    model: Model,
    width: int,
    least: float,
    margin: float,
) -> Beam:
    """Prefix beam search over frames (Hannun et al. 2014, with fusion at word ends).

    The acoustic score of a prefix sums all alignments: of those that end in a blank and of those that end
    in its last label, which are kept apart because a repeated label needs a blank between.

    Args:
        beam: the search so far; its arrays are written to.
        log_probs: [frames, labels] ln P.
        model: what else scores a text.
        width: prefixes that survive a frame.
        least: labels of less ln P are left out of a frame, except for its best.
        margin: prefixes are dropped that score this much less than the best of the frame.
    """
    frames, labels = log_probs.shape
    nodes, count, active, before, seen, seen_score = beam
    first, size = before.shape[0], active.size
    spans = np.zeros((first + frames, 2), np.int64)
    for frame in range(first):
        spans[frame, 0], spans[frame, 1] = before[frame, 0], before[frame, 1]
    end = before[first - 1, 1] if first else 0
    row, used = np.empty(labels), np.empty(labels, np.int64)
    for now in range(first, first + frames):
        # 1. The labels of this frame.
        best = uses = 0
        for c in range(labels):
            row[c] = log_probs[now - first, c]
            best = c if row[c] > row[best] else best
        for c in range(labels):
            if c != best and not row[c] > least:
                row[c] = -np.inf
            elif c != model.blank:
                used[uses] = c
                uses += 1
        if uses == 0 and now > 0:
            # Only a blank: every score changes by the same, and the beam stays as it is.
            for i in range(size):
                node = nodes[active[i]]
                node.total += row[model.blank]
                node.blank, node.last = node.total, -np.inf
            spans[now, 0], spans[now, 1] = spans[now - 1, 0], end
            continue
        most = size * (uses + 1)
        score, chosen = np.empty(most), np.empty(most, np.int64)
        nodes, active = _with_room(nodes, count + most), _with_room(active, most)
        seen, seen_score = _with_room(seen, end + most), _with_room(seen_score, end + most)

        # 2. Prefixes that stay, by a blank or the last label again; spaces at the start and after a space
        # change nothing either. One whose parent is in the beam is also that one with its last label.
        highest = -np.inf
        for i in range(size):
            node = nodes[active[i]]
            own, is_root = node.label, active[i] == ROOT
            chosen[i], last = active[i], -np.inf
            if model.space != NONE and (is_root or own == model.space):
                last = node.total + row[model.space]
            elif not is_root:
                last = node.last + row[own]
            if not is_root and row[own] > -np.inf and nodes[node.parent].place != NONE:
                parent = nodes[node.parent]
                grown = (parent.blank if own == parent.label else parent.total) + row[own]
                last = _log_add(last, grown)
            node.next_blank, node.next_last = node.total + row[model.blank], last
            node.next_total = _log_add(node.next_blank, last)
            score[i] = node.next_total + node.ended + node.begun
            highest = max(highest, score[i])

        # 3. Prefixes that grow, the best first: few of the others then come near the best.
        candidates, fresh = size, 0
        for i in range(size):
            node = nodes[active[i]]
            for u in range(uses):
                c = used[u]
                grown = (node.blank if c == node.label else node.total) + row[c]
                if c == model.space and (active[i] == ROOT or node.label == c):
                    continue
                begun = max(node.begun, model.unknown_score)  # an end withdraws the rest
                bound = grown + node.ended + begun + model.gain[c]
                if grown == -np.inf or bound < highest - margin:
                    continue
                at = _child(nodes, active[i], c)
                if at != NONE and nodes[at].place != NONE:
                    continue  # that is the one that stays
                if at == NONE:
                    at = count + fresh
                    _extend(model, node, c, nodes[at])
                    nodes[at].parent, nodes[at].label = active[i], c
                score[candidates] = grown + nodes[at].ended + nodes[at].begun
                if score[candidates] >= highest - margin:
                    highest = max(highest, score[candidates])
                    nodes[at].next_blank = -np.inf
                    nodes[at].next_last = nodes[at].next_total = grown
                    chosen[candidates] = at
                    candidates += 1
                    fresh += at == count + fresh

        # 4. The best survive, the earlier of two equal ones.
        lowest = highest - margin
        if _above(score, candidates, lowest) > width:
            lowest = _reached_by(score, candidates, width, max(lowest, LEAST), highest)
        equal = width - _above(score, candidates, lowest)
        for i in range(size):
            nodes[active[i]].place = NONE
        free, survivors, lead = count, 0, 0
        for k in range(candidates):
            is_equal = score[k] == lowest and score[k] > -np.inf and equal > 0
            if not (score[k] > lowest or is_equal):
                continue
            equal -= is_equal
            at = chosen[k]
            if at >= count:  # it is new: behind the others, and among its parent's children
                nodes[free] = nodes[at]
                parent = nodes[nodes[free].parent]
                nodes[free].child, nodes[free].sibling, parent.child = NONE, parent.child, free
                at, free = free, free + 1
            active[survivors], seen_score[end + survivors] = at, score[k]
            lead = survivors if score[k] == highest else lead
            survivors += 1

        # 5. They are the new beam, the best first.
        active[0], active[lead] = active[lead], active[0]
        for i in range(survivors):
            node = nodes[active[i]]
            node.blank, node.last, node.total = node.next_blank, node.next_last, node.next_total
            seen[end + i], node.place = active[i], i
        seen_score[end], seen_score[end + lead] = seen_score[end + lead], seen_score[end]
        spans[now, 0], spans[now, 1] = end, end + survivors
        count, size, end = free, survivors, end + survivors
    return Beam(nodes, count, active[:size].copy(), spans, seen, seen_score)


@kernel()
def ends(beam: Beam, model: Model) -> tuple[Floats, Ints]:
    """What the survivors' words add to their scores if the utterance ends here, and hashes of the texts."""
    added, texts = np.empty(beam.active.size), np.empty(beam.active.size, np.int64)
    for i, at in enumerate(beam.active):
        node = beam.nodes[at]
        history, added[i], texts[i] = node.history, node.ended, node.text
        if node.word != 0:
            more, history, _ = end_word(model, node.lexicon, history, node.hotword)
            added[i], texts[i] = added[i] + more, text_hash(node.text, node.word)
        if model.fused:
            ln_p, _ = ngram_score(model.ngrams, history, model.ngrams.end)
            added[i] += model.alpha * ln_p
    return added, texts


@kernel()
def labels_of(nodes: Any, node: int) -> Ints:
    """The labels of a prefix, first to last."""
    size, at = 0, node
    while at != ROOT:
        size, at = size + 1, nodes[at].parent
    labels, at = np.empty(size, np.int64), node
    for k in range(size):
        labels[size - 1 - k], at = nodes[at].label, nodes[at].parent
    return labels


@kernel()
def words_of(
    beam: Beam,
    model: Model,
    log_probs: NDArray[np.float32],
    labels: Ints,
    scores: Floats,
    is_greedy: bool,
) -> tuple[Ints, Floats]:
    """The words of a sequence of labels.

    Args:
        beam: after the last frame.
        model: what the labels spell.
        log_probs: [frames, labels] of all frames.
        labels: one after the other.
        scores: [survivors] as `best_texts` gives them.
        is_greedy: confidence is that of the labels.

    Returns:
        ([words, 2] the first frame and the frame behind the last, [words] confidence).
    """
    spans = align(log_probs, labels, model.blank)
    # 1. The word of each character, its hash, its first and last label.
    most = 0
    for label in labels:
        most += model.starts[label + 1] - model.starts[label]
    hashes, places = np.empty(most, np.int64), np.empty((most, 2), np.int64)
    size = word = 0
    for k, label in enumerate(labels):
        for at in range(model.starts[label], model.starts[label + 1]):
            if model.spelling[at] == SPACE:
                size, word = size + (word != 0), 0
                continue
            places[size, 0] = places[size, 0] if word != 0 else k
            places[size, 1] = k
            word = hashes[size] = word_hash(word, model.spelling[at])
    size += word != 0
    # 2. Confidence, when the next word begins.
    confidence = np.empty(size)
    for w in range(size):
        begin, final = places[w]
        if is_greedy:
            mean = 0.0
            for k in range(begin, final + 1):
                for frame in range(spans[k, 0], spans[k, 1]):
                    mean += log_probs[frame, labels[k]] / (spans[k, 1] - spans[k, 0])
            confidence[w] = math.exp(mean / (final + 1 - begin))
        elif w + 1 < size:
            now = spans[places[w + 1, 0], 0]
            low, high = beam.spans[now, 0], beam.spans[now, 1]
            seen, score = beam.seen[low:high], beam.seen_score[low:high]
            confidence[w] = _share(beam.nodes, seen, score, hashes[w], False)
        else:
            confidence[w] = _share(beam.nodes, beam.active, scores, hashes[w], True)
        places[w, 0], places[w, 1] = spans[begin, 0], spans[final, 1]
    return places[:size], confidence


@kernel()
def _share(nodes: Any, active: Ints, score: Floats, word: int, has_ended: bool) -> float:
    """The share of some prefixes' probability whose last complete word is one.

    Args:
        nodes: the tree.
        active: some of it.
        score: [active] ln of their probabilities, up to a constant.
        word: hash of the word.
        has_ended: whether the utterance has ended, and with it each last word.
    """
    highest, having, everything = score[0], 0.0, 0.0
    for k in range(active.size):
        highest = max(highest, score[k])
    for k in range(active.size):
        node = nodes[active[k]]
        mass = math.exp(score[k] - highest)
        everything += mass
        if word == (node.word if has_ended and node.word != 0 else node.last_word):
            having += mass
    return having / everything


@kernel()
def align(log_probs: NDArray[np.float32], labels: Ints, blank: int) -> Ints:
    """The most probable alignment of labels with frames (Viterbi).

    Returns:
        [labels, 2] the first frame of each label and the frame behind its last.
    """
    frames, size = log_probs.shape[0], labels.size
    spans = np.zeros((size, 2), np.int64)
    states = 2 * size + 1  # blank, label, blank, ..., label, blank
    value = np.empty(states, np.float32)
    for s in range(states):
        value[s] = -np.inf if s else 0.0  # in front of the first frame
    came = np.zeros((frames, states), np.int8)
    for frame in range(frames):
        row = log_probs[frame]
        # From the last on, so that `value` is that of the frame before; states that cannot be reached yet,
        # or from which the end cannot be reached any more, are left out.
        low = max(0, states - 2 * (frames - frame))
        for s in range(min(states - 1, 2 * frame + 1), low - 1, -1):
            own = blank if s % 2 == 0 else labels[s // 2]
            best, back = value[s], 0
            if s > 0 and value[s - 1] > best:
                best, back = value[s - 1], 1
            if s > 1 and s % 2 and own != labels[s // 2 - 1] and value[s - 2] > best:
                best, back = value[s - 2], 2
            value[s], came[frame, s] = best + row[own], back
    s = states - 1
    if size and value[states - 2] > value[s]:
        s = states - 2
    for frame in range(frames - 1, -1, -1):
        if s % 2:
            spans[s // 2, 0] = frame
            spans[s // 2, 1] = max(spans[s // 2, 1], frame + 1)
        s -= came[frame, s]
    return spans
