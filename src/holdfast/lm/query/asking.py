"""The questions: which texts, how probable, samples, how many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from holdfast.errors import InputError, LimitError
from holdfast.lm.models.protocol import LanguageModel
from holdfast.lm.query.bounding import mass_compiled
from holdfast.lm.query.compiling import CompiledQuery, compile_query, language_of
from holdfast.lm.query.exact import MOST_ARCS, exact_mass, has_finite_contexts
from holdfast.lm.query.queries import Query
from holdfast.lm.query.regex.operations import count_strings, strings
from holdfast.lm.query.results import (
    Count,
    Counts,
    Mass,
    MassStep,
    Progress,
    Samples,
)
from holdfast.lm.query.sampling.methods import Method, sample_compiled
from holdfast.lm.query.searches.finding import Search
from holdfast.lm.query.tokens.counting import count_token_paths
from holdfast.lm.tokenizers.tokenizer import Tokenizer

MOST_ENCODED = 200_000
"""Texts that are encoded one by one to count the lengths of canonical sequences."""
SHORT_SEARCH = 1000
"""Evaluations after which a small exact sum is tried before a longer search."""
SMALL_SUM = 200_000
"""Arcs of a product that is summed in less time than that search takes."""
EXACT = 1e-9
"""Relative slack of an exact mass: a sum over many states, in logarithms."""

Watch = Callable[[Progress], None]


def search(
    model: LanguageModel,
    query: Query,
    n: int = 10,
    *,
    batch: int = 64,
    budget: int | None = None,
    state: Path | None = None,
    watch: Watch | None = None,
) -> Search:
    """The most probable texts of a query, in order, each once, with all its encodings together.

    Iterate over the search for each match as soon as it is proven; ``search(...).result()`` runs it to its
    end and returns the `Matches`. A text's probability is that of writing it up to a token boundary,
    whatever follows; with ``eos=True``, of writing it and then ending.

    Args:
        model: the model.
        query: the query.
        n: number of texts.
        batch: prefixes given to the model together; answers for other batches agree to 1e-6.
        budget: evaluations (tokens that the model computes) after which to stop; 100,000 by default.
        state: file in which the search is saved; an existing one is resumed.
        watch: called while the search runs.

    Raises:
        InputError: if the query cannot be compiled, or `state` belongs to another query.
    """
    _check_model(model, query)
    compiled = compile_query(query, model.tokenizer, "texts")
    return Search(model, compiled, n, batch, budget, state=state, watch=watch)


def mass(
    model: LanguageModel,
    query: Query,
    tol: float = 1e-3,
    *,
    batch: int = 64,
    budget: int | None = None,
    state: Path | None = None,
    watch: Watch | None = None,
) -> Mass:
    """Bounds of the probability of a query's event, given the prefix.

    Args:
        model: the model to ask.
        query: the question.
        tol: gap between the bounds at which to stop.
        batch: prefixes given to the model together.
        budget: evaluations (tokens that the model computes) after which to stop, 100,000 by default; the
            bounds are valid at any time. For an n-gram model without a budget the sum is exact.
        state: file in which the search is saved; an existing one is resumed.
        watch: called while the bounds converge.

    Raises:
        InputError: if the query cannot be compiled, or `state` belongs to another question.
    """
    _check_model(model, query)
    compiled = compile_query(query, model.tokenizer)
    # A sum over few contexts is quicker than a long search, and a short search than any sum.
    summed = budget is None and has_finite_contexts(model)
    for evaluations, arcs in (
        ((SHORT_SEARCH, SMALL_SUM), (None, MOST_ARCS)) if summed else ((budget, 0),)
    ):
        bounds = mass_compiled(
            model, compiled, tol=tol, batch=batch, budget=evaluations, state=state, watch=watch
        )
        if not (summed and bounds.stopped == "budget"):
            break
        with suppress(InputError, LimitError):  # the bounds stand
            return _closed(bounds, exact_mass(model, compiled, arcs))
    return bounds


def sample(
    model: LanguageModel,
    query: Query,
    n: int = 1000,
    seed: int = 0,
    *,
    method: Method = "auto",
    batch: int = 64,
) -> Samples:
    """Texts of a query as the model would write them, each with its weight.

    Args:
        model: the model to ask.
        query: the question.
        n: how many samples.
        seed: the same seed gives the same samples.
        method: ``local`` masks token by token and weighs the samples, ``exact`` draws from the language
            itself (n-gram models); ``auto`` is exact where possible, else local.
        batch: prefixes given to the model together.

    Raises:
        InputError: if the query cannot be compiled, or the method does not suit the model.
    """
    _check_model(model, query)
    compiled = compile_query(query, model.tokenizer)
    return sample_compiled(model, compiled, n, seed=seed, method=method, batch=batch)


def count(query: Query, tokenizer: Tokenizer | None = None, longest: int | None = None) -> Counts:
    """How many texts a query has, and how many token sequences spell them: exact, or ``"infinite"``.

    Sequences are counted after the prefix, for each of its strings. Canonical ones are one for each text
    that the tokenizer can spell, of those whose encoding starts with the tokens of the prefix.

    Args:
        query: the question.
        tokenizer: without one, only texts are counted.
        longest: tell the token sequences of each length up to this one too, also of an infinite
            language.

    Raises:
        InputError: if the query cannot be compiled.
        LimitError: if canonical sequences were asked for of more texts than can be encoded, and the
            tokenizer may not spell them all, or there is a prefix, or lengths were asked for.
    """
    if tokenizer is None:
        return Counts(count_strings(language_of(query)), None)
    compiled = compile_query(query, tokenizer, "texts")
    texts = count_strings(compiled.language)
    if query.encodings == "canonical":
        paths, by_length = _canonical(compiled, texts, longest)
    else:
        paths, by_length = _all(compiled, longest)
    if longest is None:
        return Counts(texts, paths)
    lengths = ((size, paths) for size, paths in sorted(by_length.items()) if size <= longest)
    return Counts(texts, paths, tuple(lengths))


def check_model(model: LanguageModel) -> None:
    """Refuse an object that is not a `LanguageModel`, such as a model of transformers."""
    if not hasattr(model, "logprobs"):
        raise InputError(
            "not a language model of holdfast",
            code="unsupported",
            place="model",
            found=type(model).__name__,
            expected="a model that load(NAME) gives, or HuggingFaceModel(model, tokenizer)",
            remedy="wrap a model of transformers: "
            "holdfast.lm.query.HuggingFaceModel(model, tokenizer)",
        )


def _check_model(model: LanguageModel, query: Query) -> None:
    check_model(model)
    if query.eos and not model.tokenizer.ends:
        raise InputError(
            "the model has no end of text, so that no text ends",
            code="unsupported",
            place=model.name,
            remedy="ask what its text starts with (eos=False, --no-eos)",
        )


def _closed(bounds: Mass, exact: float) -> Mass:
    """Bounds that the search left open, closed by the sum over the model's finitely many contexts."""
    lower = max(bounds.lower, exact * (1 - EXACT))
    upper = min(bounds.upper, exact * (1 + EXACT))
    if lower > upper:  # where the search itself is nearer than that
        return bounds
    step = MassStep(bounds.evaluations, lower, upper)
    return replace(bounds, lower=lower, upper=upper, steps=(*bounds.steps, step), stopped="exact")


def _all(compiled: CompiledQuery, longest: int | None) -> tuple[Count, Counter[int]]:
    total: Count = 0
    lengths: Counter[int] = Counter()
    for prompt in compiled.prompts:
        paths, by_length = count_token_paths(prompt.automaton, longest)
        total = "infinite" if isinstance(total, str) or isinstance(paths, str) else total + paths
        lengths.update(dict(by_length))
    return total, lengths


def _canonical(
    compiled: CompiledQuery, texts: Count, longest: int | None
) -> tuple[Count, Counter[int]]:
    """The canonical sequences, by encoding every text where that is possible."""
    tokenizer = compiled.tokenizer
    if isinstance(texts, int) and texts <= MOST_ENCODED:
        lengths: Counter[int] = Counter()
        for text in strings(compiled.language, texts):
            for prompt in compiled.prompts:
                if text.startswith(prompt.text):
                    rest, given = text[len(prompt.head) :], len(prompt.tokens)
                    tokens = tuple(tokenizer.encode(rest))
                    if tokenizer.spell(tokens) == rest and tokens[:given] == prompt.tokens:
                        lengths[len(tokens) - given] += 1
        return lengths.total(), lengths
    every_byte = set(range(256)) <= {
        piece[0] for piece in tokenizer.pieces if piece is not None and len(piece) == 1
    }
    if longest is None and compiled.query.prefix is None and not compiled.query.prompt:
        if tokenizer.merges is not None and every_byte:
            return texts, Counter()  # every text has exactly one
        what = f"the tokenizer {tokenizer.name} may not spell every text"
    else:
        what = "lengths, and sequences after a prefix, are counted by encoding every text"
    raise LimitError(
        f"{what}, and there are too many to encode each",
        needed=f"{texts} texts" if isinstance(texts, str) else f"{texts:,} texts",
        allowed=f"{MOST_ENCODED:,} texts",
        remedy="narrow the regular expression, or count all encodings",
    )
