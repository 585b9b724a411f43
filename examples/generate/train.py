"""Train the example: a small Llama on the standard library, with a loss at an early exit in turn."""

from __future__ import annotations

import json
import sysconfig
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM

STEPS, BATCH, LENGTH, EXIT_SHARE = 900, 16, 128, 0.3
END = "<|end|>"
folder = Path(__file__).parent
torch.manual_seed(0)
sources = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))[:150]
texts = [path.read_text(encoding="utf-8", errors="ignore") for path in sources]

bytes_ = pre_tokenizers.ByteLevel.alphabet()
tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
tokenizer.train_from_iterator(
    texts,
    trainers.BpeTrainer(
        vocab_size=512, initial_alphabet=sorted(bytes_), special_tokens=[END], show_progress=False
    ),
)
tokens = torch.tensor([token for text in texts for token in (0, *tokenizer.encode(text).ids)])

config = LlamaConfig(
    vocab_size=512,
    hidden_size=64,
    intermediate_size=160,
    num_hidden_layers=6,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=256,
    bos_token_id=0,
    eos_token_id=0,
    pad_token_id=0,
    tie_word_embeddings=True,
)
model = LlamaForCausalLM(config)
optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.01)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=STEPS)
for step in range(STEPS):
    starts = torch.randint(0, len(tokens) - LENGTH - 1, (BATCH,))
    batch = torch.stack([tokens[start : start + LENGTH + 1] for start in starts])
    targets = batch[:, 1:].flatten()
    out = model.model(batch[:, :-1], output_hidden_states=True)
    exits = out.hidden_states[1:-1]  # after each layer but the last
    early = model.lm_head(model.model.norm(exits[step % len(exits)]))
    loss = cross_entropy(model.lm_head(out.last_hidden_state).flatten(0, 1), targets)
    loss = loss + EXIT_SHARE * cross_entropy(early.flatten(0, 1), targets)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    schedule.step()
model.to(torch.float16).save_pretrained(folder)
tokenizer.save(str(folder / "tokenizer.json"))
special = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": END, "eos_token": END}
(folder / "tokenizer_config.json").write_text(json.dumps(special))
