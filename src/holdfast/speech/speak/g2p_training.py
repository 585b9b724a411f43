"""Training of the network from letters to phones, and its error rates on words that it has not seen."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from rapidfuzz.distance import Levenshtein
from torch import Tensor, nn
from torch.nn import functional

from holdfast.errors import InputError
from holdfast.files import read_whole, write_whole
from holdfast.speech.recognize.model import write_model
from holdfast.speech.recognize.trainer import (
    ORDER,
    STATE,
    Trainer,
    check_output,
    fingerprint,
    threads,
)
from holdfast.speech.speak.dictionary import PHONES, Phones, part_of, plain_phone, read_dictionary
from holdfast.speech.speak.g2p import (
    BEAM,
    LETTERS,
    MARK,
    LettersToPhones,
    PhonemizerDescription,
    PhonemizerSettings,
)

_IGNORED = -100
"""Target of steps behind the end of a pronunciation."""


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
    settings: PhonemizerSettings | None = None,
    resume: bool = False,
) -> PhonemizerScore:
    """Train a model for `phonemes`: the words of the dictionary, and a network for all others.

    Words of the letters a to z and the apostrophe are split by word: a tenth are tested on.

    Args:
        dictionary: in the format of CMUdict; it becomes part of the model as it is.
        output: folder of the model.
        settings: size and training of the network; none: those of `PhonemizerSettings`.
        resume: continue a run that was interrupted, or that shall have more epochs.

    Raises:
        InputError: what `read_dictionary` refuses; ``output-exists``; ``no-data`` without test words;
            ``conflict`` if another run is resumed.
        HoldfastError: ``diverged`` if the loss is not finite.
    """
    settings, output = settings or PhonemizerSettings(), Path(output)
    check_output(output, resume)
    parts: dict[str, dict[str, list[Phones]]] = defaultdict(dict)
    for word, phones in read_dictionary(dictionary).items():
        if set(word) <= set(LETTERS):
            parts[part_of(word)][word] = phones
    if not parts["train"] or not parts["test"]:
        raise InputError("too few words to train and test on", code="no-data", path=dictionary)
    torch.manual_seed(settings.seed)
    examples = _examples(parts["train"])
    network = LettersToPhones(settings)
    plan = fingerprint([asdict(replace(settings, epochs=1)), examples])
    trainer = PhonemizerTrainer(network, settings, examples, output / STATE, plan)
    with threads(settings.threads):
        trainer.run()
    # Half precision: half the size, and the score is that of the numbers written.
    network.half().float().eval()
    result = score_words(network, parts["test"])
    write_whole(output / "dictionary", read_whole(dictionary, "a pronouncing dictionary"))
    about = PhonemizerDescription("phonemizer", settings, asdict(result), trainer.history)
    write_model(output, about, network.half())
    return result


def score_words(
    model: LettersToPhones, words: Mapping[str, Sequence[Phones]], beam: int = BEAM
) -> PhonemizerScore:
    """Pronounce words and compare with the nearest of their alternates."""
    rows = []
    for word, alternates in words.items():
        guess = model.best(word, beam)[0].phones
        forms = (guess, alternates), (_plain(guess), [*map(_plain, alternates)])
        rows.append([_errors(*form) for form in forms])
    wrong, edits, phones = np.array(rows).sum(0).T  # each with and without stress
    rates = np.stack([wrong / len(words), edits / phones], 1)
    return PhonemizerScore(len(words), *rates.flatten().tolist())


def _errors(guess: Phones, alternates: Sequence[Phones]) -> tuple[int, int, int]:
    edits, length = min((Levenshtein.distance(each, guess), len(each)) for each in alternates)
    return int(edits > 0), edits, length


def _plain(phones: Phones) -> Phones:
    return tuple(map(plain_phone, phones))


Example = tuple[list[int], list[int]]
"""Letters and phones of a pronunciation, as indices."""


def _examples(words: Mapping[str, Sequence[Phones]]) -> list[Example]:
    index = {phone: place for place, phone in enumerate(PHONES, MARK + 1)}
    return [
        ([LETTERS.index(letter) for letter in word], [index[phone] for phone in phones])
        for word, alternates in words.items()
        for phones in alternates
    ]


class PhonemizerTrainer(Trainer):
    """A run of the network; its examples are pronunciations."""

    def lengths(self, epoch: int) -> NDArray[np.float64]:
        """Letters of each example."""
        return np.array([len(letters) for letters, _ in self.examples], np.float64)

    def batches(self, epoch: int) -> list[list[int]]:
        """Words of one length, in random order: the encoder then needs no padding."""
        rng = np.random.default_rng([self.settings.seed, ORDER, epoch])
        lengths, size, batches = self.lengths(epoch), self.settings.batch, []
        for length in np.unique(lengths):
            places = rng.permutation(np.flatnonzero(lengths == length)).tolist()
            batches += [places[begin : begin + size] for begin in range(0, len(places), size)]
        return [batches[place] for place in rng.permutation(len(batches))]

    def loss(self, places: Sequence[int], epoch: int) -> Tensor:
        """Cross entropy per phone, the end of the word among them."""
        # What dropout leaves out is the same in a resumed run.
        torch.manual_seed(hash((self.settings.seed, epoch, self.step)))
        letters, phones = zip(*(self.examples[place] for place in places), strict=True)
        ends = [torch.tensor([*each, MARK]) for each in phones]
        after = nn.utils.rnn.pad_sequence(ends, True, _IGNORED)
        before = functional.pad(after[:, :-1].clamp(min=MARK), (1, 0), value=MARK)
        logits = self.network(torch.tensor(letters), before)
        mean = functional.cross_entropy(logits.flatten(0, 1), after.flatten())
        return mean * len(places)
