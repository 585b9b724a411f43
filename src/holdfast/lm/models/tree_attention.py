"""Keys and values of every prefix that a transformer has computed, so that each is computed once.

Prefixes form a trie. A node holds the keys and values of its last token in every layer; those of a whole
prefix are found on the way to the root. New nodes, whatever their parents, go through the model as one
sequence: the past are the ancestors of all of them, each once, and a mask lets each node see its own
ancestors only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from holdfast.lm.models.protocol import Prefix

BUDGET_BYTES = 1 << 30
_ROOT = -1


class PrefixTree:
    """The evaluated prefixes of one model, with their keys and values.

    Args:
        model: a causal transformer of Hugging Face, in evaluation mode, whose attention takes a mask of
            shape [1, 1, new, past + new] and positions as given.
        bos: the token in front of every prefix, or None; with it, the empty prefix is a node.
        budget_bytes: memory for keys and values. Beyond it the prefixes used longest ago are forgotten,
            never those that a forward pass under way needs.
    """

    def __init__(self, model: Any, bos: int | None, budget_bytes: int = BUDGET_BYTES) -> None:
        self.model = model
        self.bos = bos
        self.budget_bytes = budget_bytes
        self.slots: dict[Prefix, int] = {}
        self._prefix: list[Prefix] = []  # by slot
        self._free: list[int] = []
        self._parent = np.empty(0, np.int64)  # by slot; _ROOT at the root
        self._used = np.empty(0, np.int64)  # by slot: the last turn in which its keys were needed
        self._turn = 0
        self._keys: list[Any] = []  # by layer: [slots, heads, width]
        self._values: list[Any] = []
        self._limit: int | None = None  # slots within the budget, known after the first pass

    def missing(self, prefixes: Sequence[Prefix]) -> list[Prefix]:
        """What has to be evaluated for these prefixes: themselves, and ancestors that are not kept.

        Parents come before children. Ancestors that are kept stay until the next call.
        """
        self._turn += 1
        wanted = set(prefixes)
        for prefix in prefixes:
            above = self._above(prefix)
            while above is not None and above not in self.slots and above not in wanted:
                wanted.add(above)
                above = self._above(above)
            if above in self.slots:
                self._touch(self.slots[above])
        return sorted(wanted)

    def forward(self, rows: Sequence[Prefix], places: Sequence[int]) -> Any:
        """Evaluate prefixes, whose parents are kept or stand in front of them, in one pass.

        Args:
            rows: N prefixes.
            places: places in `rows` whose logits are asked for, at least one.

        Returns:
            [len(wanted), vocabulary] the logits of the token that follows.
        """
        known = [prefix in self.slots for prefix in rows]
        slots = self._allocate(rows)
        try:
            return self._computed(rows, slots, places)
        except (
            BaseException
        ):  # memory is full, or Ctrl-C: what has no keys must not look as if it had
            for prefix, kept in zip(rows, known, strict=True):
                if not kept:
                    self._drop(prefix)
            raise

    def _computed(
        self, rows: Sequence[Prefix], slots: npt.NDArray[np.int64], wanted: Sequence[int]
    ) -> Any:
        import torch
        from transformers import DynamicCache

        past, mask = self._lineage(slots)
        model, device = self.model, self.model.device
        index = torch.from_numpy(past).to(device)
        cache = DynamicCache()
        for layer in range(len(self._keys) if len(past) else 0):
            here = index.to(self._keys[layer].device)  # layers may lie on several devices
            keys, values = self._keys[layer][here], self._values[layer][here]
            # [past, heads, width] -> [1, heads, past, width]
            cache.update(keys.transpose(0, 1)[None], values.transpose(0, 1)[None], layer)
        tokens = [prefix[-1] if prefix else self.bos for prefix in rows]
        depth = [len(prefix) - (self.bos is None) for prefix in rows]
        hidden = torch.from_numpy(~mask).to(device)
        blocked = torch.zeros(mask.shape, dtype=model.dtype, device=device)
        blocked.masked_fill_(hidden, torch.finfo(model.dtype).min)
        told = model(
            input_ids=torch.tensor([tokens], device=device),
            attention_mask=blocked[None, None],
            position_ids=torch.tensor([depth], device=device),
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=torch.tensor(wanted, device=device),
        )
        self._store(told.past_key_values, slots, len(past))
        return told.logits[0]

    def _above(self, prefix: Prefix) -> Prefix | None:
        if len(prefix) > (self.bos is None):
            return prefix[:-1]
        return None

    def _touch(self, slot: int) -> None:
        # An ancestor is used whenever a descendant is: the least used can always be forgotten leaf by leaf.
        while slot != _ROOT and self._used[slot] < self._turn:
            self._used[slot] = self._turn
            slot = int(self._parent[slot])

    def _allocate(self, rows: Sequence[Prefix]) -> npt.NDArray[np.int64]:
        new = sum(prefix not in self.slots for prefix in rows)
        if self._limit is not None and len(self.slots) + new > self._limit:
            self._forget(len(self.slots) + new - self._limit)
        grown = len(self.slots) + new - len(self._prefix)
        if grown > 0:
            grown = max(grown, len(self._prefix))
            self._free += range(len(self._prefix) + grown - 1, len(self._prefix) - 1, -1)
            self._prefix += [()] * grown
            self._parent = np.concatenate([self._parent, np.full(grown, _ROOT)])
            self._used = np.concatenate([self._used, np.zeros(grown, np.int64)])
        taken = []
        for prefix in rows:
            slot = self.slots.get(prefix)
            if slot is None:
                slot = self._free.pop()
                above = self._above(prefix)
                self.slots[prefix] = slot
                self._prefix[slot] = prefix
                self._parent[slot] = _ROOT if above is None else self.slots[above]
            self._used[slot] = self._turn
            taken.append(slot)
        return np.array(taken)

    def _forget(self, least: int) -> None:
        """Drop what was used longest ago, a quarter of all at a time; what this turn needs stays."""
        live = np.fromiter(self.slots.values(), np.int64)
        live = live[self._used[live] < self._turn]
        depth = np.array([len(self._prefix[slot]) for slot in live], np.int64)
        assert self._limit is not None
        for slot in live[np.lexsort((-depth, self._used[live]))][: max(least, self._limit // 4)]:
            self._drop(self._prefix[slot])

    def _drop(self, prefix: Prefix) -> None:
        slot = self.slots.pop(prefix)
        self._prefix[slot] = ()
        self._free.append(slot)

    def _lineage(
        self, slots: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """([past] slots of all ancestors not evaluated now, [N, past + N] what each node may see)."""
        row, slot = np.arange(len(slots)), slots
        rows, seen = [row], [slot]
        while len(slot):
            slot = self._parent[slot]
            row, slot = row[slot != _ROOT], slot[slot != _ROOT]
            rows.append(row)
            seen.append(slot)
        every_row, every = np.concatenate(rows), np.concatenate(seen)
        past = np.setdiff1d(every, slots)
        column = np.empty(len(self._prefix), np.int64)
        column[past] = np.arange(len(past))
        column[slots] = len(past) + np.arange(len(slots))
        mask = np.zeros((len(slots), len(past) + len(slots)), np.bool_)
        mask[every_row, column[every]] = True
        return past, mask

    def _store(self, cache: Any, slots: npt.NDArray[np.int64], past: int) -> None:
        import torch

        capacity = len(self._prefix)
        new = [
            # [1, heads, past + N, width] -> [N, heads, width]
            (layer.keys[0, :, past:].transpose(0, 1), layer.values[0, :, past:].transpose(0, 1))
            for layer in cache.layers
        ]
        if self._limit is None:
            each = sum(part[0].numel() * part.element_size() for pair in new for part in pair)
            self._limit = max(1, self.budget_bytes // each)
            self._keys = [keys.new_empty((0, *keys.shape[1:])) for keys, _ in new]
            self._values = [values.new_empty((0, *values.shape[1:])) for _, values in new]
        index = torch.from_numpy(slots).to(self.model.device)
        for layer, (keys, values) in enumerate(new):
            self._keys[layer] = _grown(self._keys[layer], capacity)
            self._values[layer] = _grown(self._values[layer], capacity)
            here = index.to(keys.device)
            self._keys[layer][here] = keys
            self._values[layer][here] = values


def _grown(arena: Any, capacity: int) -> Any:
    """The same rows, with room for `capacity`."""
    if len(arena) >= capacity:
        return arena
    larger = arena.new_empty((capacity, *arena.shape[1:]))
    larger[: len(arena)] = arena
    return larger
