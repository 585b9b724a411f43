"""PyTorch models on secret weights and secret inputs.

A model is exported (`torch.export`) to a graph of ATen operations, which is prepared in three steps:

1. every operation must be known (`operations.OPERATIONS`): those that are missing are all listed, with the
   modules that they are in;
2. what depends on weights alone is computed in plaintext at the owner: positional embeddings, and batch
   normalization, which is folded into the convolution or linear layer before it;
3. what is left of the weights is shared, and the parties compare a hash of the graph.

All parties build the same module; only the owner's weights count.
"""

from __future__ import annotations

import hashlib
import logging
import math
import operator
import re
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.fx.node import Node, map_aggregate
from torch.nn.utils.fusion import fuse_conv_bn_weights

from holdfast.errors import InputError
from holdfast.private.mpc.arithmetic import Fixed
from holdfast.private.mpc.bounds import Bound, Role, WeightFacts, weight_facts
from holdfast.private.mpc.functions import with_height
from holdfast.private.mpc.operations import NO_GRADIENT, OPERATIONS
from holdfast.private.mpc.ring import check_finite, invalid
from holdfast.private.mpc.rounds import parallel
from holdfast.private.mpc.tensor import SharedTensor

Given = Tensor | Sequence[Tensor]
"""One input of a model, or several."""
_UNKNOWN = 2**15 - 1  # of a result that no calibration has seen
_SECRET = "holdfast_input"  # mark of the nodes that depend on an input, and so run on secrets
_ASSIGNED = re.compile(r"in forward\n +(\w+) = ")  # the outermost frame of a stack trace
_EXPORTING = threading.Lock()  # torch exports one model at a time; simulated parties are threads


@dataclass(frozen=True)
class Ref:
    """A value that a step computes, or an input."""

    name: str


@dataclass
class Constant:
    """What depends on the model alone."""

    value: Tensor
    secret: bool
    """Whether weights are in it; else it follows from the architecture, which is public."""


@dataclass
class Step:
    """One operation on a secret: `result` = `call`(*args, **kwargs)."""

    result: str
    op: str
    module: str
    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def names(self) -> list[str]:
        """The names that it refers to, in order."""
        return _named((self.args, self.kwargs))


@dataclass
class Graph:
    """A model that is ready to be shared."""

    steps: list[Step]
    constants: dict[str, Constant]
    inputs: list[tuple[str, torch.Size, torch.dtype]]
    outputs: list[Any]
    parameters: dict[str, str] = field(default_factory=dict)
    """Name of a placeholder -> name of the parameter in the state dict."""
    variables: dict[str, str] = field(default_factory=dict)
    """Result of a step -> the variable that holds it in the model's `forward`."""
    largest: dict[str, int] = field(default_factory=dict)
    """At the owner, result of a step or input -> power of two above it, of `largest_results`."""
    remade: Any = None
    """The graph of the same model for inputs of other shapes."""

    def text(self) -> str:
        """What must be the same at all parties, as text: operations and shapes."""
        lines = [f"{name} {tuple(shape)}" for name, shape, _ in self.inputs]
        for name, each in self.constants.items():
            known = "secret" if each.secret else each.value.tolist()
            lines.append(f"{name} {tuple(each.value.shape)} {each.value.dtype} {known}")
        lines += [repr((s.result, s.op, s.module, s.args, s.kwargs)) for s in self.steps]
        return "\n".join([*lines, repr(self.outputs)])


# --- From a module to a graph --------------------------------------------------------------------


def prepare(module: nn.Module, example: Sequence[Tensor], *, trainable: bool = False) -> Graph:
    """Export a module and fold everything that depends on its weights alone.

    Args:
        module: in evaluation mode.
        example: inputs of the shapes and types that the model will get.
        trainable: keep every parameter as it is, so that it can be trained.

    Raises:
        InputError: ``unsupported`` with all operations that are missing, by module.
    """
    program = _exported(module, tuple(example))
    missing = _missing(program.graph, trainable)
    if missing:
        raise InputError(
            f"{len(missing)} operations of the model are not supported",
            code="unsupported",
            found="; ".join(missing),
            expected=", ".join(sorted({each.name for each in OPERATIONS.values()})),
            remedy="replace these modules, or compute that part in plaintext at the owner",
        )
    graph = _folded(program, trainable)
    graph.remade = partial(prepare, module, trainable=trainable)
    _fold_batch_norms(graph)
    _max_pool_before_relu(graph)
    used = set(_named(([(step.args, step.kwargs) for step in graph.steps], graph.outputs)))
    graph.constants = {name: graph.constants[name] for name in sorted(used & set(graph.constants))}
    return graph


def _exported(module: nn.Module, example: tuple[Tensor, ...]) -> Any:
    logging.getLogger("torch.export").setLevel(logging.ERROR)
    training = module.training
    try:
        with _EXPORTING, warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # of torch's own use of itself
            table = torch.export.default_decompositions()
            for known in OPERATIONS:  # in parts they would cost more
                table.pop(known, None)
            return torch.export.export(module.eval(), example).run_decompositions(table)
    except Exception as error:
        raise InputError(
            "the model cannot be exported",
            code="unsupported",
            found=f"{type(error).__name__}: {str(error).splitlines()[0]}",
            expected="a module that torch.export takes: no branches on values of tensors",
        ) from error
    finally:
        module.train(training)


def _missing(graph: Any, trainable: bool) -> list[str]:
    """Operations on the input that are not supported, with their module."""
    found: dict[str, None] = {}
    for node in graph.nodes:
        secret = any(each.meta[_SECRET] for each in node.all_input_nodes)
        if node.op == "placeholder":
            secret = not node.name.startswith(("p_", "b_", "c_"))
        node.meta[_SECRET] = secret
        if node.op != "call_function" or node.target is operator.getitem or not node.users:
            continue  # what nobody uses, such as checks of types, is not computed
        if secret and (problem := _problem(node, trainable)):
            found[f"{problem} in {_module_of(node) or 'the model itself'}"] = None
    return list(found)


def _problem(node: Any, trainable: bool) -> str | None:
    known = OPERATIONS.get(node.target)
    if known is None:
        return str(node.target).removesuffix(".default").replace("aten.", "")
    names = (each.name for each in node.target._schema.arguments)
    given = dict(zip(names, node.args, strict=False)) | node.kwargs
    reason = known.refuses(given) if known.refuses else None
    if trainable and known.name in NO_GRADIENT:
        reason = "no gradient"
    return f"{known.name} ({reason})" if reason else None


def _module_of(node: Any) -> str:
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    return str(stack[-1][0]) if stack else ""


def _folded(program: Any, trainable: bool) -> Graph:
    """The steps that depend on inputs; everything else is computed here, in plaintext."""
    constants, inputs, steps, variables = {}, [], [], {}
    outputs: list[Any] = []
    names = _placeholders(program)
    for node in program.graph.nodes:
        if node.op == "placeholder":
            if node.name in names:
                value = names[node.name][1]
                # Buffers with infinities are masks: they are of the architecture.
                is_mask = not node.name.startswith("p_") and not bool(torch.isfinite(value).all())
                secret = value.is_floating_point() and not is_mask
                constants[node.name] = Constant(value.detach(), secret)
            else:
                inputs.append((node.name, node.meta["val"].shape, node.meta["val"].dtype))
        elif node.op == "output":
            outputs = list(_refs(node.args[0]))
        elif node.users:
            args, kwargs = _refs(node.args), _refs(node.kwargs)
            used = _named((args, kwargs))
            is_parameter = trainable and any(constants.get(name, _PUBLIC).secret for name in used)
            if all(name in constants for name in used) and not is_parameter:
                with torch.no_grad():
                    values = {name: each.value for name, each in constants.items()}
                    value = _called(node.target, node, values)
                secret = any(constants[name].secret for name in used)
                constants[node.name] = Constant(value, secret)
            else:
                op = "getitem" if node.target is operator.getitem else OPERATIONS[node.target].name
                steps.append(Step(node.name, op, _module_of(node), node.target, args, kwargs))
                if line := _ASSIGNED.search(node.meta.get("stack_trace") or ""):
                    variables[node.name] = line[1]
    parameters = {name: target for name, (target, _) in names.items()}
    return Graph(steps, constants, inputs, outputs, parameters, variables)


_PUBLIC = Constant(torch.zeros(()), False)


def _placeholders(program: Any) -> dict[str, tuple[str, Tensor]]:
    """Placeholder -> name and value of the parameter, buffer or constant that it stands for."""
    signature = program.graph_signature
    names = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    values = {**program.constants, **program.state_dict}
    return {placeholder: (target, values[target]) for placeholder, target in names.items()}


def _refs(value: Any) -> Any:
    """Arguments of a node with references in place of nodes."""
    return map_aggregate(value, lambda leaf: Ref(leaf.name) if isinstance(leaf, Node) else leaf)


def _named(value: Any) -> list[str]:
    """The names that arguments refer to."""
    names: list[str] = []

    def note(leaf: Any) -> None:
        if isinstance(leaf, Ref):
            names.append(leaf.name)

    map_aggregate(value, note)
    return names


def _filled(value: Any, values: Mapping[str, Any]) -> Any:
    """Arguments with values in place of references."""
    return map_aggregate(value, lambda leaf: values[leaf.name] if isinstance(leaf, Ref) else leaf)


def _called(call: Callable[..., Any], step: Any, values: Mapping[str, Any]) -> Any:
    """What a step gives, for the values of the names that it refers to."""
    return call(*_filled(_refs(step.args), values), **_filled(_refs(step.kwargs), values))


# --- Batch normalization and pooling -------------------------------------------------------------


def _users(graph: Graph) -> dict[str, list[Step]]:
    users: dict[str, list[Step]] = {}
    for step in graph.steps:
        for name in step.names():
            users.setdefault(name, []).append(step)
    return users


def _fold_batch_norms(graph: Graph) -> None:
    """Batch normalization in evaluation is x * scale + shift: part of the layer before, if possible."""
    makers = {step.result: step for step in graph.steps}
    users = _users(graph)
    for step in [each for each in graph.steps if each.op == "batch_norm"]:
        source, *refs = step.args[:5]
        gamma, beta, mean, variance = (_value(graph, each) for each in refs)
        layer = makers.get(source.name, step)
        if layer.op in ("conv1d", "conv2d", "linear") and len(users[source.name]) == 1:
            source, kernel, *more = layer.args
            bias, options = _value(graph, more[0] if more else None), more[1:]
            weight = _value(graph, kernel)
            layer.result = step.result  # which the users of both refer to
            graph.steps.remove(step)
        else:
            layer, weight, bias, options = step, torch.ones_like(mean)[:, None], None, []
        folded = fuse_conv_bn_weights(weight, bias, mean, variance, step.args[6], gamma, beta)
        names = [f"{layer.result}_{suffix}" for suffix in ("weight", "bias")]
        for name, value in zip(names, folded, strict=True):
            graph.constants[name] = Constant(value.detach(), True)
        layer.args = (source, *map(Ref, names), *options)


def _value(graph: Graph, ref: Ref | None) -> Any:
    return None if ref is None else graph.constants[ref.name].value


def _max_pool_before_relu(graph: Graph) -> None:
    """ReLU commutes with maxima: after the pooling it has a quarter of the elements."""
    users = _users(graph)
    for place, (step, after) in enumerate(pairwise(list(graph.steps))):
        if step.op == "relu" and after.op == "max_pool2d" and users[step.result] == [after]:
            after.args, step.args = (*step.args, *after.args[1:]), after.args[:1]
            step.result, after.result = after.result, step.result
            graph.steps[place : place + 2] = [after, step]


# --- The model at one party ----------------------------------------------------------------------


_PRODUCTS = {"linear": "linear", "conv2d": "conv2d", "conv1d": "conv2d"}
"""Layer -> its product with a weight."""


def _roles(graph: Graph) -> dict[str, Role]:
    """The constants that are weights of layers, or factors; all others are added, or looked up."""
    roles: dict[str, Role] = {}
    for step in graph.steps:
        if step.op in ("mul", "div", "batch_norm", "layer_norm", "rms_norm", "matmul"):
            roles.update((name, "factor") for name in _named(step.args[:3]))
    for step in graph.steps:
        if step.op in _PRODUCTS:
            roles.update((name, "weight") for name in _named(step.args[1]))
    return roles


def largest_results(
    module: nn.Module, calibration: Given, margin: float, *, trainable: bool = False
) -> dict[str, int]:
    """For typical inputs in plaintext, the power of two above what each step gives, times a margin."""
    if not 0 < margin < math.inf:
        raise invalid("margin", margin, "a positive number")
    inputs = _listed(calibration)
    for each in inputs:
        check_finite(each, "calibration")
    graph = prepare(module, inputs, trainable=trainable)
    constants = {name: each.value for name, each in graph.constants.items()}
    values: dict[str, Any] = dict(zip((name for name, *_ in graph.inputs), inputs, strict=True))
    for step in graph.steps:
        given = constants | values
        # Batch normalization is not what its target does any more.
        call = OPERATIONS[step.target].call if step.op == "batch_norm" else step.target
        values[step.result] = _called(call, step, given)
    return {
        name: math.ceil(Bound.around(value).times(margin).bits)
        for name, value in values.items()
        if isinstance(value, Tensor) and bool(torch.isfinite(value).all())
    }


class PrivateModel:
    """A model whose weights are secret: call it with shared tensors, at every party.

    Args:
        party: this party.
        graph: of `prepare`.
        owner: rank of the party whose weights count.
        trainable: keep the weights as parameters that can be trained.

    Attributes:
        expected: largest magnitude of inputs and results that a calibration allows, by their names.
    """

    def __init__(self, party: Any, graph: Graph, owner: int, *, trainable: bool = False) -> None:
        self.party, self.graph = party, graph
        self._graphs = {tuple(shape for _, shape, _ in graph.inputs): graph}
        identity = hashlib.sha256(graph.text().encode()).digest()
        party.same(identity, "import", "has another model: its operations or shapes differ")
        self.values: dict[str, Any] = {}
        facts = self._owner_facts(owner)
        for name, constant in graph.constants.items():
            if not constant.secret:
                self.values[name] = constant.value
                continue
            known = facts[name]
            shared: SharedTensor = party.secret(
                constant.value,
                owner=owner,
                shape=tuple(constant.value.shape),
                bound=2.0**known.bits,
                fraction_bits=known.scale,
                name=name,
            )
            shared.row_sum, shared.requires_grad = 2.0**known.row_bits, trainable
            self.values[name] = shared
        if not trainable and party.mode != "replicated3":
            self._open_masked_weights()

    def _owner_facts(self, owner: int) -> dict[str, WeightFacts]:
        """What the owner declares to all: powers of two of each weight's and each result's magnitudes."""
        bits = self.party.fraction_bits
        roles = _roles(self.graph)
        own = {
            name: weight_facts(each.value, bits, role=roles.get(name, "term"))
            for name, each in self.graph.constants.items()
            if each.secret
        }
        results = [name for name, *_ in self.graph.inputs] + [s.result for s in self.graph.steps]
        numbers = [number for each in own.values() for number in each]
        numbers += [self.graph.largest.get(name, _UNKNOWN) for name in results]
        with self.party.channel.scope("import"):
            told = self.party.broadcast(np.array(numbers, dtype=np.int16).tobytes(), owner)
        self.party.agree("weights", told)
        all_told = np.frombuffer(told, np.int16)
        rows = all_told[: 3 * len(own)].reshape(-1, 3).tolist()
        exponents = zip(results, all_told[3 * len(own) :].tolist(), strict=True)
        self.expected = {name: 2.0**bits for name, bits in exponents if bits != _UNKNOWN}
        return {name: WeightFacts(*row) for name, row in zip(own, rows, strict=True)}

    def _open_masked_weights(self) -> None:
        """Fix the weights of products: their masked values are opened once, all in one round."""
        protocols = []
        for step in self.graph.steps:
            weight = step.args[1] if step.op in _PRODUCTS else None
            shared = self.values.get(weight.name) if isinstance(weight, Ref) else None
            if not isinstance(shared, SharedTensor) or shared.fixed is not None:
                continue
            right: Any = with_height(shared.fix()) if step.op == "conv1d" else shared.fix()
            fixed = right.fixed[_PRODUCTS[step.op]] = Fixed()
            protocols.append(fixed.open(self.party, right.share))
        with self.party.channel.scope("import"):
            self.party.run(parallel(*protocols))

    def __call__(self, *inputs: Any) -> Any:
        """The outputs for inputs, in batches of any size.

        Raises:
            InputError: ``unsupported`` or ``invalid-value`` if the model does not take their shapes.
        """
        graph = self._graph_for(tuple(each.shape for each in inputs))
        values = dict(self.values)
        values |= {name: each.value for name, each in graph.constants.items() if not each.secret}
        values |= {name: each for (name, *_), each in zip(graph.inputs, inputs, strict=True)}
        for step in graph.steps:
            values[step.result] = self.result(step, values)
        outputs = [_filled(each, values) for each in graph.outputs]
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def result(self, step: Step, values: Mapping[str, Any]) -> Any:
        """What one step gives, for the values of the names that it refers to."""
        if step.target is operator.getitem:
            return _called(_part, step, values)
        operation = OPERATIONS[step.target]
        with nullcontext() if operation.moves else self.party.channel.scope(step.op, step.module):
            result = _called(operation.call, step, values)
        if isinstance(result, SharedTensor):
            result.expected = self.expected.get(step.result, result.expected)
        return result

    def _graph_for(self, shapes: tuple[torch.Size, ...]) -> Graph:
        """The graph for inputs of these shapes, made from the module when they are first seen."""
        if shapes not in self._graphs:
            kinds = zip(shapes, self.graph.inputs, strict=True)
            example = [torch.zeros(shape, dtype=kind) for shape, (*_, kind) in kinds]
            graph: Graph = self.graph.remade(example)
            if _weight_shapes(graph) != _weight_shapes(self.graph):
                raise InputError(
                    "invalid shape of a model's input",
                    code="invalid-value",
                    found=str([tuple(each) for each in shapes]),
                    expected=str([tuple(shape) for _, shape, _ in self.graph.inputs]),
                    remedy="import the model with an example of this shape",
                )
            self.party.agree(graph.text())
            self._graphs[shapes] = graph
        return self._graphs[shapes]

    def named_parameters(self) -> dict[str, Any]:
        """The shared weights by their names in the state dict, where the model is trainable."""
        return {
            target: self.values[name]
            for name, target in self.graph.parameters.items()
            if name in self.values and self.graph.constants[name].secret
        }

    def parameters(self) -> list[Any]:
        """The shared weights, for an optimizer."""
        return list(self.named_parameters().values())


def _part(values: Any, place: int) -> Any:
    """One of several results; operations that give one here give several in ATen."""
    return values[place] if isinstance(values, tuple) else values


def _weight_shapes(graph: Graph) -> dict[str, torch.Size]:
    return {name: each.value.shape for name, each in graph.constants.items() if each.secret}


def import_model(
    party: Any,
    module: nn.Module,
    example: Given,
    *,
    owner: int = 0,
    weights: str | Path | None = None,
    trainable: bool = False,
    calibration: Given | None = None,
    margin: float = 2.0,
) -> PrivateModel:
    """Share the weights of a PyTorch model; every party calls this with the same architecture.

    Args:
        party: this party.
        module: the architecture; at the owner with its weights.
        example: one input or several, of the shapes and types that the model will get.
        owner: rank of the party whose weights count.
        weights: safetensors file with the state dict, read at the owner only.
        trainable: keep the weights as parameters that can be trained; batch normalization is not.
        calibration: at the owner, typical inputs. What each layer makes of them, times `margin`, rounded up
            to a power of two, bounds that layer's results, and all learn it. It is checked in secret where
            the bounds of inputs and weights would be larger, and is a `RangeError` where it does not hold.
        margin: how much larger the results of other inputs may be.

    Raises:
        InputError: ``unsupported`` with all missing operations, before anything is sent.
        PeerError: ``handshake`` if another party has another architecture.
    """
    with party.channel.scope("import"):
        if weights is not None and party.rank == owner:
            load_weights(module, Path(weights))
        graph = prepare(module, _listed(example), trainable=trainable)
        if calibration is not None and party.rank == owner:
            graph.largest = largest_results(module, calibration, margin, trainable=trainable)
    return PrivateModel(party, graph, owner, trainable=trainable)


def _listed(given: Given) -> list[Tensor]:
    return [given] if isinstance(given, Tensor) else list(given)


def load_weights(module: nn.Module, path: Path) -> None:
    """Load a state dict from a safetensors file.

    Raises:
        InputError: if the file is damaged, or its names and shapes are not those of the module.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        module.load_state_dict(load_file(path))
    except (OSError, SafetensorError, RuntimeError) as error:
        raise InputError(
            "the weights cannot be loaded",
            code="not-found" if isinstance(error, FileNotFoundError) else "damaged",
            path=path,
            found=str(error).splitlines()[-1].strip(),
            expected="a safetensors file with the state dict of the module",
        ) from error
