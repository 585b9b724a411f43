"""The tree of token prefixes that a question opens, and how much probability lies where."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from holdfast.lm.models.protocol import NextToken, Prefix
from holdfast.lm.query.compiling import Prompt
from holdfast.lm.query.decoding import Rule, decode, log_sum
from holdfast.lm.query.tokens.automaton import I32
from holdfast.lm.tokenizers.tokenizer import Tokenizer

F64 = npt.NDArray[np.float64]
Event = Literal["exact", "prefix", "spelled"]
"""``exact``: a text, then its end. ``prefix``: what is written starts with a text of the language (final
states take everything). ``spelled``: a token ends where a text of the language ends, whatever follows."""

ROUNDING = 1e-11
"""Relative slack of bounds: sums of up to 1e5 terms, each a product of up to a thousand factors."""
MOST_HELD = 200_000_000
"""Children held (8 bytes each); past them a node keeps only its `KEPT` most probable ones."""
KEPT = 1024


class Reply(NamedTuple):
    """What a model says about a node, where the automaton listens."""

    logs: F64
    """[arcs] log-probability of every arc's token."""
    end: float
    """Log-probability of the end of text: of all ids that end one together."""
    rest: float
    """Probability that is not listed."""
    hides_end: bool = False
    """Whether some id that ends a text is among what is not listed."""

    @classmethod
    def of(cls, answer: NextToken, tokens: I32, ends: I32) -> Reply:
        """That of an answer."""
        ending = answer.logprobs[ends]
        hides_end = answer.rest > 0 and not np.isfinite(ending).all()
        return cls(answer.logprobs[tokens], log_sum(ending), answer.rest, bool(hides_end))


class Tree:
    """Token prefixes, best first: a partition of the probability that is not yet accepted or refused.

    A node is a prefix that was taken: it waits for the model, or was expanded. The children of an expanded
    node are not nodes before they are taken; they stand as numbers in `chances`, so that a state with
    20,000 arcs costs two passes over an array each time one is taken.
    """

    def __init__(
        self,
        prompts: Sequence[Prompt],
        starts: Sequence[float],
        tokenizer: Tokenizer,
        event: Event,
        rule: Rule,
        *,
        context: int | None = None,
        max_tokens: int | None = None,
    ) -> None:
        self.prompts = tuple(prompts)
        self.tokenizer = tokenizer
        self.pieces, self.lead = tokenizer.pieces, tokenizer.lead
        self.ends = np.array(tokenizer.ends, np.int32)
        self.event, self.rule = event, rule
        self.context = math.inf if context is None else context
        self.max_tokens = math.inf if max_tokens is None else max_tokens
        self.prompt: list[int] = []
        self.parent: list[int] = []
        self.token: list[int] = []
        self.state: list[int] = []
        self.depth: list[int] = []
        self.log: list[float] = []
        """Log of a prefix's mass: the prompt's start, times the probabilities of its tokens."""
        self.spelled: list[int] = []
        """Bytes after the prompt's tokens."""
        self.text: list[bytes] = []
        """The whole text, decoded."""
        self.under: list[bool] = []
        """``spelled`` only: whether a text of the language ended on the way (its mass is counted there)."""
        self.chances: list[F64 | None] = []
        """Probability of every child given the node; 0 once taken. None: waiting, or nothing is left."""
        self.columns: list[I32 | None] = []
        """Arcs of the automaton that the children follow; None: all."""
        self.best: list[tuple[float, int]] = []
        """(log mass, place) of the most probable child that is left."""
        self.waiting: set[int] = set()
        """Nodes that were taken and not expanded."""
        self.log_open = np.full(64, -np.inf)
        """[nodes] log of what can still be followed: a waiting node's mass, or its children left."""
        self.log_stuck = np.full(64, -np.inf)
        """[nodes] log of what cannot: not listed by the model, past max_tokens or the context."""
        self.accepted = [0.0] * len(self.prompts)
        self.reached = 0.0
        """Event ``exact``: mass of the nodes at which a text is complete, ended there or not."""
        self.hits: list[tuple[int, float]] = []
        """(node, log mass) of accepted texts; the consumer empties it."""
        self.followed = False
        """Whether somebody notes, and empties:"""
        self.taken: list[tuple[int, int]] = []
        """(node, place) of children that were taken,"""
        self.opened: list[int] = []
        """nodes that were expanded."""
        self.limits: set[str] = set()
        """Why mass is stuck."""
        self.expanded = 0
        self.held = 0
        self._heap: list[tuple[float, int, bool]] = []  # (-log mass, node, the node itself waits)
        self._finals: list[dict[int, bool]] = [{} for _ in self.prompts]
        self._bases = [
            b"".join(self.pieces[token] or b"" for token in prompt.tokens)
            for prompt in self.prompts
        ]
        for place, prompt in enumerate(self.prompts):
            if prompt.automaton.start >= 0 and starts[place] > -math.inf:
                root = self._add(
                    place, -1, -1, prompt.automaton.start, starts[place], 0, 0,
                    prompt.head + self._bases[place].removeprefix(self.lead), False,
                )  # fmt: skip
                self._admit(root)

    # --- What there is ---------------------------------------------------------------------------

    def path(self, node: int) -> Prefix:
        """The tokens of a node, after those of its prompt."""
        tokens = []
        while self.parent[node] >= 0:
            tokens.append(self.token[node])
            node = self.parent[node]
        return tuple(reversed(tokens))

    def prefix(self, node: int) -> Prefix:
        """What the model is asked to continue."""
        prompt = self.prompts[self.prompt[node]]
        return prompt.context + prompt.tokens + self.path(node)

    def top(self) -> float:
        """Log mass of the most probable piece that can be followed; -inf when none is left."""
        while self._heap:
            key, node, itself = self._heap[0]
            if self._fresh(key, node, itself):
                return -key
            heapq.heappop(self._heap)
        return -math.inf

    def bounds(self) -> list[tuple[float, float]]:
        """(accepted mass, accepted and open mass) of every prompt, not rounded."""
        size = len(self.log)
        open_mass = np.exp(self.log_open[:size]) + np.exp(self.log_stuck[:size])
        if self.event == "spelled":
            open_mass[self.under] = 0
        if len(self.prompts) == 1:
            sums = [float(open_mass.sum())]
        else:
            sums = np.bincount(self.prompt, open_mass, len(self.prompts)).tolist()
        return [(mass, mass + more) for mass, more in zip(self.accepted, sums, strict=True)]

    # --- Best first ------------------------------------------------------------------------------

    def pop(self) -> int:
        """The most probable node that the model is to be asked about; -1 when none is left."""
        while self._heap:
            key, node, itself = heapq.heappop(self._heap)
            if self._fresh(key, node, itself):
                child = node if itself else self.take(node, self.best[node][1])
                if child >= 0:
                    return child
        return -1

    def take(self, node: int, place: int) -> int:
        """Make a child a node: its number if the model is to be asked about it, else -1."""
        chances = self.chances[node]
        assert chances is not None
        columns = self.columns[node]
        tokens, following = self.arcs(node)
        column = place if columns is None else int(columns[place])
        chance = float(chances[place])
        chances[place] = 0
        if self.followed:
            self.taken.append((node, place))
        self._sum_up(node)
        token = int(tokens[column])
        piece = self.pieces[token] or b""
        child = self._add(
            self.prompt[node], node, token, int(following[column]), self.log[node] + math.log(chance),
            self.depth[node] + 1, self.spelled[node] + len(piece),
            self.text_after(node, token), self.under[node],
        )  # fmt: skip
        return child if self._admit(child) else -1

    def look_into(self, node: int, place: int) -> int:
        """Take a piece of open mass: a child, or (place -1) a node that waits; as `take`."""
        if place < 0:
            return node if node in self.waiting else -1
        chances = self.chances[node]
        return self.take(node, place) if chances is not None and chances[place] > 0 else -1

    def put_back(self, node: int) -> None:
        """A node that the model did not answer waits again."""
        heapq.heappush(self._heap, (-self.log[node], node, True))

    def reply(self, node: int, answer: NextToken) -> Reply:
        """What an answer says about a node: the rule of decoding applied, where it applies."""
        if self.spelled[node] >= len(self.prompts[self.prompt[node]].remainder):
            answer = decode(answer, self.rule)
        return Reply.of(answer, self.arcs(node)[0], self.ends)

    def expand(self, node: int, reply: Reply) -> None:
        """Accept what ends here, and open the children of a waiting node."""
        self.waiting.remove(node)
        self.log_open[node] = -np.inf
        self.expanded += 1
        if self.followed:
            self.opened.append(node)
        prompt = self.prompt[node]
        ends = self.event == "exact" and self.is_final(node)
        chances = np.exp(reply.logs)
        if reply.rest > 0 and (not chances.all() or (ends and reply.hides_end)):
            self._stick(node, reply.rest, "unlisted")
        self.reached += math.exp(self.log[node]) if ends else 0.0
        if ends and reply.end > -math.inf:
            self._accept(node, self.log[node] + reply.end)
        if self.event == "prefix" and self.prompts[prompt].accepts is None:
            hit = self._are_final(prompt, self.arcs(node)[1])
            self.accepted[prompt] += math.exp(self.log[node]) * float(chances[hit].sum())
            chances[hit] = 0
        below = self.depth[node] + 1
        if below > self.max_tokens:
            self._stick(node, float(chances.sum()), "max_tokens")
            return
        if self.event != "spelled" and self._length(node) + 1 > self.context:
            self._stick(node, float(chances.sum()), "context")
            return
        kept = np.flatnonzero(chances > 0)  # of truth values: several times as fast
        if self.held + len(kept) > MOST_HELD and len(kept) > KEPT:
            largest = np.sort(np.argpartition(-chances, KEPT)[:KEPT])
            self._stick(node, float(chances.sum() - chances[largest].sum()), "memory")
            kept = largest
        if len(kept) == 0:
            return
        self.held += len(kept)
        if len(kept) < len(chances):
            chances = chances[kept]
            self.columns[node] = kept.astype(np.int32)
        self.chances[node] = chances
        self._sum_up(node)

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]], facts: Mapping[str, Any]) -> None:
        """Become the tree that was kept: see `snapshots`."""
        for name in ("prompt", "parent", "token", "depth", "spelled", "under", "log"):
            setattr(self, name, arrays[name].tolist())
        size = len(self.log)
        self.accepted, self.limits = list(facts["accepted"]), set(facts["limits"])
        self.expanded, self.held, self.hits, self._heap = facts["expanded"], 0, [], []
        self.state, self.text = [], []
        self.chances = [None for _ in range(size)]
        self.columns = [None for _ in range(size)]
        self.best = [(-math.inf, -1)] * size
        self.log_open = np.full(max(64, size), -np.inf)
        self.log_stuck = self.log_open.copy()
        self.log_stuck[:size] = arrays["log_stuck"]
        for node in range(size):
            parent, token = self.parent[node], self.token[node]
            if parent < 0:
                prompt = self.prompts[self.prompt[node]]
                base = self._bases[self.prompt[node]].removeprefix(self.lead)
                self.state.append(prompt.automaton.start)
                self.text.append(prompt.head + base)
                continue
            tokens, following = self.arcs(parent)
            self.state.append(int(following[np.searchsorted(tokens, token)]))
            self.text.append(self.text_after(parent, token))
        self.waiting = set(arrays["waiting"].tolist())
        for node in sorted(self.waiting):
            self.log_open[node] = self.log[node]
            self.put_back(node)
        start = narrow = 0
        for node, length, whole in zip(
            arrays["opened"].tolist(),
            arrays["sizes"].tolist(),
            arrays["whole"].tolist(),
            strict=True,
        ):
            self.chances[node] = arrays["chances"][start : start + length].copy()
            start += length
            self.held += length
            if not whole:
                self.columns[node] = arrays["columns"][narrow : narrow + length].copy()
                narrow += length
            self._sum_up(node)

    # --- Nodes -----------------------------------------------------------------------------------

    def arcs(self, node: int) -> tuple[I32, I32]:
        """The automaton's arcs at a node."""
        return self.prompts[self.prompt[node]].automaton.arcs(self.state[node])

    def starts_text(self, node: int) -> bool:
        """Whether the next token may carry the lead that decoding strips."""
        return bool(self.lead) and self.depth[node] == 0 and not self._bases[self.prompt[node]]

    def text_after(self, node: int, token: int) -> bytes:
        """The text of a child."""
        piece = self.pieces[token] or b""
        return self.text[node] + (
            piece.removeprefix(self.lead) if self.starts_text(node) else piece
        )

    def is_final(self, node: int) -> bool:
        """Whether a text of the language may end at a node."""
        return self._is_final(self.prompt[node], self.state[node])

    def _is_final(self, prompt: int, state: int) -> bool:
        known = self._finals[prompt].get(state)
        if known is None:
            known = self._finals[prompt][state] = self.prompts[prompt].automaton.is_final(state)
        return known

    def _are_final(self, prompt: int, states: I32) -> npt.NDArray[np.bool_]:
        distinct, where = np.unique(states, return_inverse=True)
        return np.array([self._is_final(prompt, int(state)) for state in distinct], np.bool_)[where]

    def _length(self, node: int) -> int:
        prompt = self.prompts[self.prompt[node]]
        return len(prompt.context) + len(prompt.tokens) + self.depth[node]

    def _add(
        self,
        prompt: int,
        parent: int,
        token: int,
        state: int,
        log: float,
        depth: int,
        spelled: int,
        text: bytes,
        under: bool,
    ) -> int:
        node = len(self.log)
        self.prompt.append(prompt)
        self.parent.append(parent)
        self.token.append(token)
        self.state.append(state)
        self.log.append(log)
        self.depth.append(depth)
        self.spelled.append(spelled)
        self.text.append(text)
        self.under.append(under)
        self.chances.append(None)
        self.columns.append(None)
        self.best.append((-math.inf, -1))
        if node == len(self.log_open):
            more = np.full(node, -np.inf)
            self.log_open = np.append(self.log_open, more)
            self.log_stuck = np.append(self.log_stuck, more)
        return node

    def _admit(self, node: int) -> bool:
        """Whether the model is to be asked about a new node at once; what needs no answer is settled."""
        final = self.is_final(node)
        if final and self.event == "prefix":
            self._accept(node, self.log[node])
            return False
        if final and self.event == "spelled":
            self._accept(node, self.log[node])
        if self.event != "exact" and len(self.arcs(node)[0]) == 0:
            return False
        if self.depth[node] >= self.max_tokens and not (final and self.event == "exact"):
            self._stick(node, 1.0, "max_tokens")
            return False
        if self._length(node) > self.context:
            self._stick(node, 1.0, "context")
            return False
        self.waiting.add(node)
        self.log_open[node] = self.log[node]
        if self.parent[node] < 0 or (final and self.event == "spelled"):
            self.put_back(node)
            return False
        return True

    def _accept(self, node: int, log: float) -> None:
        prompt = self.prompt[node]
        accepts = self.prompts[prompt].accepts
        if accepts is not None and not accepts(self.path(node)):
            return
        self.hits.append((node, log))
        if not self.under[node]:
            self.accepted[prompt] += math.exp(log)
            self.under[node] = self.event == "spelled"

    def _stick(self, node: int, share: float, limit: str) -> None:
        if share > 0:
            self.log_stuck[node] = np.logaddexp(
                self.log_stuck[node], self.log[node] + math.log(share)
            )
            self.limits.add(limit)

    def _sum_up(self, node: int) -> None:
        """Find the best child that is left, and what all of them hold."""
        chances = self.chances[node]
        assert chances is not None
        place = int(chances.argmax())
        chance = float(chances[place])
        if chance == 0:
            self.held -= len(chances)
            self.chances[node] = self.columns[node] = None
            self.best[node] = (-math.inf, -1)
            self.log_open[node] = -np.inf
            return
        self.log_open[node] = self.log[node] + math.log(float(chances.sum()))
        best = (self.log[node] + math.log(chance), place)
        if best != self.best[node]:
            self.best[node] = best
            heapq.heappush(self._heap, (-best[0], node, False))

    def _fresh(self, key: float, node: int, itself: bool) -> bool:
        """Whether an entry of the heap still says the truth."""
        return node in self.waiting if itself else -key == self.best[node][0]
