"""The probability that a model writes a text of the language: bounds that close, valid at any time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from holdfast.lm.models.protocol import LanguageModel
from holdfast.lm.query.compiling import CompiledQuery
from holdfast.lm.query.decoding import Rule
from holdfast.lm.query.results import Mass, MassStep, Progress, about
from holdfast.lm.query.searches.conditioning import Scale, scales, total
from holdfast.lm.query.searches.evaluating import Evaluator
from holdfast.lm.query.searches.snapshots import Keeper
from holdfast.lm.query.searches.tree import Tree

OFTEN = 256
"""The bounds are taken after each this part of the prefixes so far."""
MOST_STEPS = 2000
"""Steps recorded; past them every second one is forgotten."""


def mass_compiled(
    model: LanguageModel,
    compiled: CompiledQuery,
    tol: float = 1e-3,
    budget: int | None = None,
    batch: int = 64,
    state: Path | None = None,
    watch: Callable[[Progress], None] | None = None,
) -> Mass:
    """Bounds of the mass of a compiled query, best first on the mass of token prefixes.

    The accepted mass is the lower bound; adding the open mass gives the upper one: prefixes not expanded,
    tokens that the model does not list, sequences past `max_tokens` or the model's context. With a prefix,
    both are divided by the bounds of the prefix's probability.

    Args:
        model: the model to ask.
        compiled: the query, compiled for its event.
        tol: gap between the bounds at which to stop.
        budget: evaluated tokens after which to stop; None for 100,000.
        batch: prefixes given to the model together.
        state: file that stores the tree; if it exists, the search resumes from it.
        watch: called after every step.

    Raises:
        InputError: if `state` belongs to another question, the prefix has probability 0, or the model lists
            too few tokens for the rule of decoding.
    """
    query = compiled.query
    keeper = Keeper(state, "mass", model, compiled)
    evaluator = Evaluator(model, batch, budget, keeper.spent, len(compiled.prompts) > 1)
    steps = [MassStep(*step) for step in keeper.steps] or [MassStep(0, 0.0, 1.0)]
    with evaluator.interruptible():
        # 1. With a prefix: bounds of its probability, which everything is divided by.
        rates = keeper.scales or scales(evaluator, compiled, tol / 10)
        # 2. The tree of token prefixes that the automaton allows, each with the mass that the model gives
        # it.
        tree = Tree(
            compiled.prompts,
            [rate.start for rate in rates],
            compiled.tokenizer,
            query.event,
            Rule.of(query),
            context=model.context,
            max_tokens=query.max_tokens,
        )
        keeper.restore(tree)
        stopped, due = None, 0
        while stopped is None:
            tree.hits.clear()
            # 3. Bounds, valid at any time: accepted mass below, accepted and open mass above.
            if evaluator.nodes >= due:  # the sums go over all nodes: not after every few of them
                due = evaluator.nodes + evaluator.nodes // OFTEN
                last = _record(steps, evaluator, tree, compiled, rates)
                if watch is not None:
                    watch(Progress(last.evaluations, evaluator.nodes, last.lower, last.upper))
                if last.upper - last.lower <= tol:
                    open_still = tree.top() > -float("inf") or tree.limits
                    stopped = "tolerance" if open_still else "closed"
                    break
            # 4. Ask the model about the open prefixes with the most mass: they close most of the gap.
            if nodes := evaluator.best(tree):
                evaluator.expand(tree, nodes)
                if keeper.due(tree):
                    keeper.save(tree, evaluator, rates, steps)
            else:
                _record(steps, evaluator, tree, compiled, rates)
                stopped = evaluator.stopped or ", ".join(sorted(tree.limits)) or "closed"
        keeper.save(tree, evaluator, rates, steps)
    last = steps[-1]
    return Mass(
        last.lower,
        last.upper,
        query.event,
        evaluator.evaluations,
        evaluator.nodes,
        tuple(steps),
        stopped,
        query.decoding(),
        compiled.notes,
        about(query, model.name),
    )


def _record(
    steps: list[MassStep],
    evaluator: Evaluator,
    tree: Tree,
    compiled: CompiledQuery,
    rates: list[Scale],
) -> MassStep:
    """Add where the bounds stand; they never widen."""
    lower, upper = total(tree, compiled.prompts, rates)
    step = MassStep(evaluator.evaluations, max(lower, steps[-1].lower), min(upper, steps[-1].upper))
    if step.upper < step.lower:  # by rounding alone, once all is closed
        step = MassStep(step.evaluations, step.upper, step.lower)
    if step != steps[-1]:
        steps.append(step)
        if len(steps) > MOST_STEPS:
            del steps[1:-1:2]
    return steps[-1]
