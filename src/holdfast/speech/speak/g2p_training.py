"""Training of the network from letters to phones, and its error rates on words that it has not seen."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from msgspec import Meta
from torch import Tensor, nn
from torch.nn import functional

from holdfast.errors import InputError
from holdfast.files import read_whole, write_whole
from holdfast.progress import track
from holdfast.speech.recognize.network import Count, Positive
from holdfast.speech.recognize.scoring import edit_distance
from holdfast.speech.recognize.trainer import DivergedError
from holdfast.speech.speak.dictionary import PHONES, Dictionary, Phones, part_of, plain_phone
from holdfast.speech.speak.g2p import BEAM, LETTERS, MARK, LettersToPhones

_IGNORED = -100
"""Target of steps behind the end of a pronunciation."""


@dataclass(frozen=True)
class PhonemizerSettings:
    """How the network is trained."""

    units: Positive = 256
    """Units of the decoder; the encoder has half of them in each direction."""
    embedding: Positive = 48
    """Values per letter and per phone."""
    epochs: Positive = 15
    """Passes over the training words."""
    batch: Positive = 128
    """Largest number of pronunciations per step."""
    learning_rate: Annotated[float, Meta(gt=0, lt=1)] = 3e-3
    """Largest; it rises for the first tenth of the steps and falls to nothing."""
    dropout: Annotated[float, Meta(ge=0, lt=1)] = 0.2
    """Share of the units of each layer that a step leaves out."""
    seed: Count = 0
    """Random seed (same seed, same result)."""


class Network(nn.Module):
    """Deep Voice 4.1 with attention: the decoder sees the letters beside its own state."""

    def __init__(self, settings: PhonemizerSettings) -> None:
        super().__init__()
        units, size = settings.units, settings.embedding
        half = units // 2
        self.letters = nn.Embedding(len(LETTERS), size)
        self.phones = nn.Embedding(len(PHONES) + 1, size)
        self.encoder = nn.GRU(size, half, batch_first=True, bidirectional=True)
        self.bridge = nn.Linear(2 * half, units)
        self.decoder = nn.GRU(size, units, batch_first=True)
        self.query = nn.Linear(units, 2 * half)
        self.mixer = nn.Linear(units + 2 * half, units)
        self.outputs = nn.Linear(units, len(PHONES) + 1)
        self.dropout = nn.Dropout(settings.dropout)

    def forward(self, letters: Tensor, phones: Tensor) -> Tensor:
        """Logits [B, S, P] of each next phone.

        Args:
            letters: of words of one length; [B, L].
            phones: before each step, the mark first; [B, S].
        """
        memory, ends = self.encoder(self.dropout(self.letters(letters)))  # [B, L, 2 H'], [2, B, H']
        hidden = torch.tanh(self.bridge(ends.transpose(0, 1).flatten(1)))
        states, _ = self.decoder(self.dropout(self.phones(phones)), hidden[None].contiguous())
        memory, states = self.dropout(memory), self.dropout(states)
        attention = (self.query(states) @ memory.transpose(1, 2)).softmax(dim=2)  # [B, S, L]
        both = torch.cat([states, attention @ memory], dim=2)
        mixed: Tensor = self.outputs(self.dropout(torch.tanh(self.mixer(both))))
        return mixed


@dataclass(frozen=True)
class PhonemizerScore:
    """Errors of the network on words it has not seen, against the nearest of each word's alternates."""

    words: int
    """Number of words."""
    wer: float
    """Share of the words whose best pronunciation is none of the alternates; stress counts."""
    per: float
    """Edits over phones; a vowel of another stress is another phone."""
    wer_without_stress: float
    per_without_stress: float


def train_phonemizer(
    dictionary: str | Path,
    output: str | Path,
    settings: PhonemizerSettings = PhonemizerSettings(),
) -> PhonemizerScore:
    """Train a model for `phonemes`: the words of the dictionary, and a network for all others.

    Words of the letters a to z and the apostrophe are split by word: a tenth are tested on, 2 % validate.

    Args:
        dictionary: in the format of CMUdict; it becomes part of the model as it is.
        output: folder of the model.
        settings: size and training of the network.

    Raises:
        InputError: what `Dictionary` refuses; ``output-exists``; ``no-data`` without test words.
        HoldfastError: ``diverged`` if the loss is not finite.
    """
    output = Path(output)
    if (output / "model.json").exists():
        raise InputError("the folder has a model", code="output-exists", path=output)
    words = Dictionary(dictionary).words()
    parts: dict[str, dict[str, list[Phones]]] = defaultdict(dict)
    for word, phones in words.items():
        if set(word) <= set(LETTERS):
            parts[part_of(word)][word] = phones
    if not parts["train"] or not parts["test"]:
        raise InputError("too few words to train and test on", code="no-data", path=dictionary)
    torch.manual_seed(settings.seed)
    network = Network(settings)
    history = _fit(network, _examples(parts["train"]), _examples(parts["validation"]), settings)
    # Half precision: half the size, and the score is that of the numbers written.
    weights = {
        name: each.detach().half().contiguous() for name, each in network.state_dict().items()
    }
    model = LettersToPhones({name: each.numpy() for name, each in weights.items()})
    result = score_words(model, parts["test"])
    from safetensors.torch import save

    output.mkdir(parents=True, exist_ok=True)
    write_whole(output / "dictionary", read_whole(dictionary, "a pronouncing dictionary"))
    write_whole(output / "weights.safetensors", save(weights))
    about: dict[str, Any] = {"kind": "phonemizer", "settings": asdict(settings)}
    about |= {"score": asdict(result), "history": history}
    write_whole(output / "model.json", json.dumps(about, indent=1).encode() + b"\n")
    return result


def score_words(
    model: LettersToPhones, words: Mapping[str, Sequence[Phones]], beam: int = BEAM
) -> PhonemizerScore:
    """Pronounce words and compare with the nearest of their alternates."""
    counts = np.zeros((2, 3))  # with and without stress: wrong words, edits, phones
    for word, alternates in words.items():
        guess = model.best(word, beam)[0].phones
        counts[0] += _errors(guess, alternates)
        counts[1] += _errors(_plain(guess), [_plain(each) for each in alternates])
    wer, per = counts[:, 0] / len(words), counts[:, 1] / counts[:, 2]
    return PhonemizerScore(len(words), float(wer[0]), float(per[0]), float(wer[1]), float(per[1]))


def _errors(guess: Phones, alternates: Sequence[Phones]) -> tuple[int, int, int]:
    edits, length = min((edit_distance(each, guess), len(each)) for each in alternates)
    return int(edits > 0), edits, length


def _plain(phones: Phones) -> Phones:
    return tuple(map(plain_phone, phones))


def _examples(words: Mapping[str, Sequence[Phones]]) -> list[tuple[list[int], list[int]]]:
    """Letters and phones of each pronunciation, as indices."""
    index = {phone: place for place, phone in enumerate(PHONES, MARK + 1)}
    return [
        ([LETTERS.index(letter) for letter in word], [index[phone] for phone in phones])
        for word, alternates in words.items()
        for phones in alternates
    ]


def _fit(
    network: Network,
    train: Sequence[tuple[list[int], list[int]]],
    validation: Sequence[tuple[list[int], list[int]]],
    settings: PhonemizerSettings,
) -> list[dict[str, float]]:
    """Train; one row per epoch: losses per phone."""
    rng = np.random.default_rng(settings.seed)
    steps = settings.epochs * len(_batches(train, settings.batch, rng))
    optimizer = torch.optim.Adam(network.parameters(), settings.learning_rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, settings.learning_rate, steps, pct_start=0.1
    )
    history: list[dict[str, float]] = []
    with track("training", settings.epochs, "epochs") as tracker:
        for epoch in range(1, settings.epochs + 1):
            network.train()
            losses = []
            for step, batch in enumerate(_batches(train, settings.batch, rng), 1):
                optimizer.zero_grad(set_to_none=True)
                loss = _loss(network, batch)
                loss.backward()  # type: ignore[no-untyped-call]
                if not bool(loss.isfinite()):
                    raise DivergedError(epoch, step)
                nn.utils.clip_grad_norm_(network.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                losses.append(float(loss.detach()))
            network.eval()
            with torch.no_grad():
                checks = [float(_loss(network, each)) for each in _batches(validation, 512, rng)]
            row = {"epoch": epoch, "loss": float(np.mean(losses))}
            if checks:
                row["validation_loss"] = float(np.mean(checks))
            history.append(row)
            tracker.describe(f"epoch {epoch}, loss {row['loss']:.3f}")
            tracker.advance(1)
    return history


def _batches(
    examples: Sequence[tuple[list[int], list[int]]], size: int, rng: np.random.Generator
) -> list[list[tuple[list[int], list[int]]]]:
    """Batches of words of one length in random order: the encoder then needs no padding."""
    by_length: dict[int, list[int]] = defaultdict(list)
    for place in rng.permutation(len(examples)):
        by_length[len(examples[place][0])].append(place)
    batches = [
        [examples[place] for place in places[begin : begin + size]]
        for places in by_length.values()
        for begin in range(0, len(places), size)
    ]
    return [batches[place] for place in rng.permutation(len(batches))]


def _loss(network: Network, batch: Iterable[tuple[list[int], list[int]]]) -> Tensor:
    """Cross entropy per phone, the end of the word among them."""
    letters, phones = zip(*batch, strict=True)
    longest = max(map(len, phones)) + 1
    before: Any = [[MARK, *each, *[MARK] * (longest - 1 - len(each))] for each in phones]
    after: Any = [[*each, MARK, *[_IGNORED] * (longest - 1 - len(each))] for each in phones]
    logits = network(torch.tensor(letters), torch.tensor(before))
    return functional.cross_entropy(logits.flatten(0, 1), torch.tensor(after).flatten())
