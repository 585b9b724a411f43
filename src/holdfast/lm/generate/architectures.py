"""Where the parts of a transformer of Hugging Face are: embedding, layers, norm, head, positions.

Exit logits after layer l are ``head(norm(hidden))`` with the head and the norm of the last layer, which
is how LayerSkip (arXiv 2404.16710) trains and drafts. Families that are not listed are refused by name:
a wrong guess about a residual or a position would generate plausible, wrong text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from holdfast.errors import InputError

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "opt", "gpt2", "gpt_neox")
"""Values of ``model_type`` that are understood."""
_FIXED_ROTARY = ("default", "linear", "llama3", "yarn", "proportional")


@dataclass(frozen=True)
class Architecture:
    """The modules of a model, as objects of Hugging Face: gradients flow through them."""

    model: Any
    name: str
    """The ``model_type`` of its configuration."""
    embedding: Any
    """Token embedding [V, D]."""
    positions: Any
    """Learned position embedding, or None."""
    position_offset: int
    """Row of `positions` for position 0."""
    rotary: Any
    """Module (x, position_ids) -> (cos, sin), or None."""
    layers: Any
    """ModuleList of decoder layers, in order."""
    norm: Any
    """Final norm."""
    head: Any
    """Linear map to logits, perhaps tied to the embedding."""
    query_heads: int
    kv_heads: int
    head_size: int
    context: int
    """Largest number of positions."""


@dataclass(frozen=True)
class LayerParts:
    """The pieces of one decoder layer; a linear map is a module with ``weight`` and ``bias``."""

    attention_norm: Any
    qkv: tuple[Any, Any]
    """Weights [(H + 2 G) hd, D] in the order query, key, value; bias or None."""
    output: tuple[Any, Any]
    mlp_norm: Any
    up: tuple[Any, Any]
    """[F, D], or [2 F, D] with the gate first."""
    down: tuple[Any, Any]
    activation: Callable[[Any], Any]
    scale: float
    """Factor of the attention scores."""
    gated: bool = False
    parallel: bool = False
    """Attention and MLP both read the input of the layer (GPT-NeoX)."""
    query_norm: Any = None
    key_norm: Any = None


def check_config(config: Any) -> None:
    """Refuse a model that cannot be run layer by layer.

    Args:
        config: the configuration of a model of transformers.

    Raises:
        InputError: ``unsupported``, with the property that is not supported.
    """
    from holdfast.lm.models.huggingface import _window

    name = getattr(config, "model_type", "")
    context = getattr(config, "max_position_embeddings", 0) or 0
    rope = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    window, layers = _window(config) if name in FAMILIES else (None, None)
    experts = next(
        (key for key in ("num_experts", "num_local_experts") if hasattr(config, key)), None
    )
    reason = None
    if getattr(config, "is_encoder_decoder", False):
        reason = f"{name}: an encoder-decoder"
    elif experts:
        reason = f"{name}: a mixture of experts"
    elif name not in FAMILIES:
        reason = name or type(config).__name__
    elif layers or (window is not None and window < context):
        reason = f"{name}: {layers or f'a sliding window of {window:,} tokens'}"
    elif rope not in _FIXED_ROTARY:
        reason = f"{name}: rotary positions of type {rope!r}, which change with the length"
    elif name == "opt" and (
        not config.do_layer_norm_before
        or config.word_embed_proj_dim != config.hidden_size
        or getattr(config, "_remove_final_layer_norm", False)
    ):
        reason = "opt: layers that normalize after attention, or projected embeddings (opt-350m)"
    elif getattr(config, "add_cross_attention", False):
        reason = f"{name}: cross-attention"
    if reason:
        raise InputError(
            "this model cannot be generated from layer by layer",
            code="unsupported",
            place="model_type",
            found=reason,
            expected=", ".join(FAMILIES) + ", with full attention in every layer",
        )


def architecture(model: Any) -> Architecture:
    """The parts of a causal language model of transformers.

    Raises:
        InputError: ``unsupported`` for a family or a variant that is not listed in `FAMILIES`.
    """
    config = model.config
    check_config(config)
    name = config.model_type
    positions, offset, rotary = None, 0, None
    if name == "gpt2":
        base = model.transformer
        embedding, positions, layers, norm = base.wte, base.wpe, base.h, base.ln_f
    elif name == "opt":
        base = model.model.decoder
        embedding, layers, norm = base.embed_tokens, base.layers, base.final_layer_norm
        positions, offset = base.embed_positions, base.embed_positions.offset
    elif name == "gpt_neox":
        base = model.gpt_neox
        embedding, layers, norm = base.embed_in, base.layers, base.final_layer_norm
        rotary = base.rotary_emb
    else:
        base = model.model
        embedding, layers, norm, rotary = base.embed_tokens, base.layers, base.norm, base.rotary_emb
    heads = config.num_attention_heads
    return Architecture(
        model=model,
        name=name,
        embedding=embedding,
        positions=positions,
        position_offset=offset,
        rotary=rotary,
        layers=layers,
        norm=norm,
        head=model.get_output_embeddings(),
        query_heads=heads,
        kv_heads=getattr(config, "num_key_value_heads", None) or heads,
        head_size=getattr(config, "head_dim", None) or config.hidden_size // heads,
        context=config.max_position_embeddings,
    )


def layer_parts(arch: Architecture, number: int) -> LayerParts:
    """The pieces of one layer, its projections joined so that each is one matrix product."""
    layer = arch.layers[number]
    if arch.name == "gpt2":
        return LayerParts(
            attention_norm=layer.ln_1,
            qkv=_joined(layer.attn.c_attn),
            output=_joined(layer.attn.c_proj),
            mlp_norm=layer.ln_2,
            up=_joined(layer.mlp.c_fc),
            down=_joined(layer.mlp.c_proj),
            activation=layer.mlp.act,
            scale=layer.attn.scaling,
        )
    if arch.name == "gpt_neox":
        return LayerParts(
            attention_norm=layer.input_layernorm,
            qkv=_by_kind(
                _joined(layer.attention.query_key_value), arch.query_heads, arch.head_size
            ),
            output=_joined(layer.attention.dense),
            mlp_norm=layer.post_attention_layernorm,
            up=_joined(layer.mlp.dense_h_to_4h),
            down=_joined(layer.mlp.dense_4h_to_h),
            activation=layer.mlp.act,
            scale=layer.attention.scaling,
            parallel=layer.use_parallel_residual,
        )
    attention = layer.self_attn
    qkv = _joined(attention.q_proj, attention.k_proj, attention.v_proj)
    if arch.name == "opt":
        return LayerParts(
            attention_norm=layer.self_attn_layer_norm,
            qkv=qkv,
            output=_joined(attention.out_proj),
            mlp_norm=layer.final_layer_norm,
            up=_joined(layer.fc1),
            down=_joined(layer.fc2),
            activation=layer.activation_fn,
            scale=attention.scaling,
        )
    return LayerParts(
        attention_norm=layer.input_layernorm,
        qkv=qkv,
        output=_joined(attention.o_proj),
        mlp_norm=layer.post_attention_layernorm,
        up=_joined(layer.mlp.gate_proj, layer.mlp.up_proj),
        down=_joined(layer.mlp.down_proj),
        activation=layer.mlp.act_fn,
        scale=attention.scaling,
        gated=True,
        query_norm=getattr(attention, "q_norm", None),
        key_norm=getattr(attention, "k_norm", None),
    )


def _joined(*modules: Any) -> tuple[Any, Any]:
    """([out, D], [out] or None) of linear maps of one input, one below the other."""
    import torch

    weights, biases = [], []
    for module in modules:
        kind = type(module).__name__
        if kind not in ("Linear", "Conv1D", "NonDynamicallyQuantizableLinear"):
            raise InputError(
                "this model has layers whose weights cannot be read",
                code="unsupported",
                place="model",
                found=kind,
                expected="plain linear layers",
                remedy="merge adapters into the model (merge_and_unload); load it without quantization",
            )
        weight = module.weight.detach()
        weights.append(weight.T if kind == "Conv1D" else weight)
        biases.append(None if module.bias is None else module.bias.detach())
    if all(bias is None for bias in biases):
        return torch.cat(weights).contiguous(), None
    filled = [
        weight.new_zeros(len(weight)) if bias is None else bias
        for weight, bias in zip(weights, biases, strict=True)
    ]
    return torch.cat(weights).contiguous(), torch.cat(filled)


def _by_kind(pair: tuple[Any, Any], heads: int, size: int) -> tuple[Any, Any]:
    """Rows stored head by head (query, key, value of each) -> all queries, all keys, all values."""
    weight, bias = pair
    weight = weight.view(heads, 3, size, -1).transpose(0, 1).reshape(3 * heads * size, -1)
    return weight, None if bias is None else bias.view(heads, 3, size).transpose(0, 1).reshape(-1)
