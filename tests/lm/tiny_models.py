"""Tiny random models of every supported family."""

from __future__ import annotations

from typing import Any

import torch
import transformers

VOCABULARY = 64
FAMILIES = (
    "llama",
    "llama-grouped",
    "mistral",
    "qwen2",
    "qwen3",
    "opt",
    "gpt2",
    "gpt_neox",
    "gpt_neox-serial",
)


def tiny(
    family: str,
    seed: int = 0,
    layers: int = 4,
    context: int = 128,
    spread: float = 0.25,
    **more: Any,
) -> Any:
    """A random model of `family` with four layers of width 32, in float32.

    Args:
        spread: standard deviation of the weights; large enough that logits differ clearly.
        more: further entries of the configuration.
    """
    name, _, variant = family.partition("-")
    shared: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "max_position_embeddings": context,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
    }
    own: dict[str, dict[str, Any]] = {
        "llama": {"intermediate_size": 48, "num_key_value_heads": 2 if variant else 4},
        "mistral": {"intermediate_size": 48, "num_key_value_heads": 2, "sliding_window": None},
        "qwen2": {"intermediate_size": 48, "num_key_value_heads": 2},
        "qwen3": {"intermediate_size": 48, "num_key_value_heads": 2, "head_dim": 16},
        "opt": {"ffn_dim": 48, "word_embed_proj_dim": 32, "dropout": 0.0},
        "gpt2": {},
        "gpt_neox": {"intermediate_size": 48, "use_parallel_residual": not variant},
    }
    prefixes = {"opt": "OPT", "gpt2": "GPT2", "gpt_neox": "GPTNeoX"}
    prefix = prefixes.get(name, name.capitalize())
    entries = {**shared, **own[name], **more}
    if name == "gpt2":
        renamed = {
            "hidden_size": "n_embd",
            "num_hidden_layers": "n_layer",
            "num_attention_heads": "n_head",
        }
        entries = {renamed.get(key, key): value for key, value in entries.items()}
        entries["n_positions"] = entries.pop("max_position_embeddings")
    if name == "gpt_neox":
        entries["rope_parameters"] = {
            "rope_type": "default",
            "rope_theta": 1e4,
            "partial_rotary_factor": 0.5,
        }
    torch.manual_seed(seed)
    config = getattr(transformers, f"{prefix}Config")(**entries)
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim == 2:
                weight.normal_(std=spread)
            else:  # norms and biases: not all one and zero, so that a forgotten one shows
                weight.add_(torch.randn_like(weight) * 0.2)
    return model.eval()
