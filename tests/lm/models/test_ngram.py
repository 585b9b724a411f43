"""N-gram models against the definition of back-off, by hand and by a plain reading of the file."""

from __future__ import annotations

import gzip
import math
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_arpa import BEGIN, random_arpa

from holdfast.errors import InputError
from holdfast.lm.models.arpa import read_arpa
from holdfast.lm.models.loading import load
from holdfast.lm.models.ngram import NgramModel, open_ngram

SMALL = r"""
Made by hand; a comment in front is allowed.

\data\
ngram 1=5
ngram 2=4
ngram 3=1

\1-grams:
-99 <s> -0.17609125905568124
-0.60205999132796240 </s>
-0.60205999132796240 <unk>
-0.60205999132796240 the -0.17609125905568124
-0.60205999132796240 cat -0.12493873660829995

\2-grams:
-0.30102999566398120 <s> the -0.30102999566398120
-0.30102999566398120 the cat
-0.30102999566398120 cat </s>
-0.90308998699194360 cat the

\3-grams:
-0.12493873660829995 <s> the cat

\end\
"""


def write(folder: Path, text: str | bytes, name: str = "m.arpa") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


class PlainBackoff:
    """The definition, from the text of a file: dictionaries and recursion."""

    def __init__(self, text: str) -> None:
        self.probability: dict[tuple[str, ...], float] = {}
        self.backoff: dict[tuple[str, ...], float] = {}
        order = 0
        for line in text.splitlines():
            fields = line.split()
            if line.endswith("-grams:"):
                order = int(line[1:].partition("-")[0])
            elif order and len(fields) > order:
                gram = tuple(fields[1 : order + 1])
                self.probability[gram] = 10 ** float(fields[0]) if float(fields[0]) > -99 else 0.0
                if len(fields) > order + 1:
                    self.backoff[gram] = 10 ** float(fields[-1])
        self.order = order
        self.words = [gram[0] for gram in self.probability if len(gram) == 1]

    def __call__(self, history: tuple[str, ...], word: str) -> float:
        if word == "<s>":
            return 0.0
        history = history[max(0, len(history) - self.order + 1) :]
        if (*history, word) in self.probability:
            return self.probability[*history, word]
        return self.backoff.get(history, 1.0) * self(history[1:], word) if history else 0.0


def test_by_hand(tmp_path: Path) -> None:
    model = load(f"ngram:{write(tmp_path, SMALL)}")
    assert isinstance(model, NgramModel)
    begin, end, unknown, the, cat = range(5)
    first, after_the, after_both = (
        np.exp(answer.logprobs) for answer in model.logprobs([(), (the,), (the, cat)])
    )
    assert first[[begin, the, cat]] == pytest.approx([0, 1 / 2, 1 / 6])
    # P(cat | <s> the) is listed; P(the | <s> the) = b(<s> the) b(the) P(the) = 1/2 * 2/3 * 1/4.
    assert after_the[[cat, the, unknown]] == pytest.approx([0.75, 1 / 12, 1 / 12])
    assert after_both[[end, the]] == pytest.approx([0.5, 0.125])
    assert model.tokenizer.bos == begin
    assert model.tokenizer.eos == end
    assert model.tokenizer.pieces == (None, None, None, b"the", b"cat")
    assert (model.cost.calls, model.cost.nodes) == (1, 3)


@pytest.mark.parametrize("seed", range(40))
def test_every_context_against_the_definition(tmp_path: Path, seed: int) -> None:
    made = random_arpa(seed, unknown=seed % 2 == 1)
    model = NgramModel(write(tmp_path, made.text()))
    names = {piece.decode(): token for token, piece in enumerate(model.tokenizer.pieces) if piece}
    assert set(names) == set(made.words)
    for size in range(4):
        prefixes = list(product(sorted(names), repeat=size))
        answers = model.logprobs([tuple(map(names.__getitem__, words)) for words in prefixes])
        for words, answer in zip(prefixes, answers, strict=True):
            expected = [made.probability([BEGIN, *words], word) for word in sorted(names)]
            told = np.exp(answer.logprobs[[names[word] for word in sorted(names)]])
            np.testing.assert_allclose(told, expected, rtol=1e-12)
            assert np.exp(answer.logprobs).sum() == pytest.approx(1, abs=1e-12)
    assert model.remarks == ()
    np.testing.assert_allclose(model.sums(), 1, atol=1e-9)


@st.composite
def odd_files(draw: st.DrawFn) -> str:
    """Files no toolkit writes: n-grams without their suffixes or contexts, weights everywhere, holes."""
    words = ["<s>", "</s>", "a", "b", "c"]
    order = draw(st.integers(1, 4))
    number = st.integers(-3000, -1000).map(lambda value: value / 1000)
    weight = st.none() | st.integers(-2000, 0).map(lambda value: value / 1000)
    sections = []
    for size in range(1, order + 1):
        every = list(product(words, repeat=size))
        grams = (
            every if size == 1 else draw(st.lists(st.sampled_from(every), unique=True, max_size=12))
        )
        lines = []
        for gram in grams:
            line = f"{draw(number | st.just(-99.0))} {' '.join(gram)}"
            told = draw(weight) if size < order else None
            lines.append(line if told is None else f"{line}\t{told}")
        sections.append(lines)
    counts = [f"ngram {size}={len(lines)}" for size, lines in enumerate(sections, 1)]
    body = [row for size, lines in enumerate(sections, 1) for row in (f"\\{size}-grams:", *lines)]
    return "\n".join(["\\data\\", *counts, *body, "\\end\\", ""])


@settings(max_examples=60)
@given(text=odd_files(), data=st.data())
def test_odd_files_back_off_by_the_definition(
    tmp_path_factory: pytest.TempPathFactory, text: str, data: st.DataObject
) -> None:
    model = NgramModel(write(tmp_path_factory.mktemp("odd"), text))
    plain = PlainBackoff(text)
    history = tuple(data.draw(st.lists(st.sampled_from([2, 3, 4]), max_size=6)))
    words = tuple(plain.words[token] for token in history)
    expected = [plain(("<s>", *words), word) for word in plain.words]
    told = np.exp(model.logprobs([history])[0].logprobs)
    np.testing.assert_allclose(told, expected, rtol=1e-9)
    sums = model.sums()
    for state in range(model.num_states):
        context = tuple(plain.words[word] for word in model.context_words(state))
        total = sum(plain(context, word) for word in plain.words)
        assert sums[state] == pytest.approx(total, rel=1e-9)


def test_the_contexts_are_an_automaton(tmp_path: Path) -> None:
    made = random_arpa(7, order=3, words=4)
    model = NgramModel(write(tmp_path, made.text()))
    tokens = [token for token, piece in enumerate(model.tokenizer.pieces) if piece]
    for size in range(5):
        for prefix in product(tokens, repeat=size):
            state = model.start_state
            for token in prefix:
                state = model.step(state, token)
            assert state == model.state_after(prefix)
            assert 0 <= state < model.num_states
            by_prefix = model.logprobs([prefix])[0].logprobs
            np.testing.assert_array_equal(by_prefix, model.logprobs_of(state))


def test_prefixes_share_contexts_and_the_cost_says_so(tmp_path: Path) -> None:
    model = NgramModel(write(tmp_path, SMALL))
    model.logprobs([(3, 4), (4, 4, 3, 4), (3, 4)])
    assert model.cost.nodes == 2
    assert model.cost.evaluations == 1
    with pytest.raises(ValueError, match="read-only"):
        model.logprobs([()])[0].logprobs[0] = 0


@pytest.mark.parametrize("change", ["crlf", "gz", "blank", "spaces"])
def test_forms_of_the_same_file(tmp_path: Path, change: str) -> None:
    text = {
        "crlf": SMALL.replace("\n", "\r\n").encode(),
        "gz": gzip.compress(SMALL.encode()),
        "blank": SMALL.replace("\n", "\n\n").encode(),
        "spaces": SMALL.replace(" ", "  ").replace("-0.6", "\t-0.6").encode(),
    }[change]
    changed = NgramModel(write(tmp_path, text, "changed"))
    plain = NgramModel(write(tmp_path, SMALL))
    for prefix in [(), (3,), (3, 4), (4, 4)]:
        np.testing.assert_array_equal(
            changed.logprobs([prefix])[0].logprobs, plain.logprobs([prefix])[0].logprobs
        )


def test_a_model_without_begin_starts_in_the_empty_context(tmp_path: Path) -> None:
    text = "\\data\\\nngram 1=2\nngram 2=0\n\\1-grams:\n-0.30103 a\n-0.30103 </s>\n\\end\\\n"
    model = NgramModel(write(tmp_path, text))
    assert model.tokenizer.bos is None
    assert np.exp(model.logprobs([()])[0].logprobs) == pytest.approx([0.5, 0.5], abs=1e-6)


BROKEN = [
    ("a 2-gram short of a word", "the cat\n-0.30102999566398120 cat </s>", "the\n-0.3 cat </s>", "2-gram"),
    ("no number", "-0.12493873660829995 <s>", "minus <s>", "bad log10 probability"),
    ("not a number", "-0.12493873660829995 <s>", "nan <s>", "bad log10 probability"),
    ("above one", "-0.12493873660829995 <s>", "0.2 <s>", "above 1"),
    ("back-off at the top", "<s> the cat\n\n\\end", "<s> the cat -0.5\n\n\\end", "nothing backs off"),
    ("an unknown word", "cat the\n", "cat dog\n", "not among the 1-grams"),
    ("a word twice", "-0.60205999132796240 cat -", "-0.6 the -", "duplicate word"),
    ("a 2-gram twice", "cat the\n", "the cat\n", "duplicate n-gram"),
    ("too many announced", "ngram 2=4", "ngram 2=5", "not that of the header"),
    ("a missing count", "ngram 2=4\n", "", "bad count"),
    ("a wrong section", "\\3-grams:", "\\4-grams:", "unexpected heading"),
    ("cut off", "\\end\\\n", "", "do not end"),
    ("no ARPA file", "\\data\\", "data", "not an ARPA file"),
    ("too probable", "-0.12493873660829995 <s>", "-0.01 <s>", "add up to more than 1"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "problem"), [case[1:] for case in BROKEN], ids=[c[0] for c in BROKEN]
)
def test_broken_files_are_refused_with_their_place(
    tmp_path: Path, old: str, new: str, problem: str
) -> None:
    assert SMALL.count(old) == 1
    with pytest.raises(InputError, match=problem) as caught:
        NgramModel(write(tmp_path, SMALL.replace(old, new)))
    assert caught.value.place is not None
    assert caught.value.path is not None


def test_the_line_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_arpa(write(tmp_path, SMALL.replace("cat the\n", "cat dog\n")))
    assert caught.value.place == "line 20"
    assert (caught.value.found, caught.value.expected) == ("dog", "words of the 1-grams")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_arpa(tmp_path / "absent.arpa")
    with pytest.raises(InputError, match="cannot be read"):
        read_arpa(write(tmp_path, gzip.compress(SMALL.encode())[:-20]))


def test_rounded_digits_are_told_and_never_pass_one(tmp_path: Path) -> None:
    text = SMALL.replace("-0.12493873660829995 <s>", "-0.1248 <s>")
    model = NgramModel(write(tmp_path, text))
    assert "'<s> the'" in model.remarks[0]
    assert model.sums().max() == pytest.approx(1.00024, abs=1e-5)
    assert all(
        np.exp(model.logprobs_of(state)).sum() < 1 + 1e-14 for state in range(model.num_states)
    )


def test_normalise_divides_by_the_sum(tmp_path: Path) -> None:
    path = write(tmp_path, SMALL.replace("-0.12493873660829995 <s>", "-0.01 <s>"))
    model = open_ngram(f"{path}?normalise")
    for state in range(model.num_states):
        assert np.exp(model.logprobs_of(state)).sum() == pytest.approx(1)
    ratio = math.exp(model.logprobs([(3,)])[0].logprobs[4] - model.logprobs([(3,)])[0].logprobs[3])
    assert ratio == pytest.approx(10**-0.01 * 12)
    assert model.remarks


def test_missing_mass_is_told(tmp_path: Path) -> None:
    model = NgramModel(write(tmp_path, SMALL.replace("-0.12493873660829995 <s>", "-1 <s>")))
    assert "only after '<s> the'" in model.remarks[0]


def test_names(tmp_path: Path) -> None:
    path = write(tmp_path, SMALL)
    assert load(f"ngram:{path}?words").tokenizer.lead == b" "
    assert load(f"ngram:{path}?pieces").tokenizer.spaced is None
    with pytest.raises(InputError, match="unknown option"):
        load(f"ngram:{path}?wrods")
    for name in ("ngram:", "arpa", "xyz:model", "hf:/no/such/folder"):
        with pytest.raises(InputError, match="model"):
            load(name)
