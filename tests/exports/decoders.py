"""Decoders with static caches as PyTorch's exporter writes them: those of transformers, with seeded weights.

ids [1, row], position [row]; past.N.key, past.N.value [1, head, room, element]  -->  logits, present.N.key, ...
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn

WORDS, ROOM, LAYERS, HEADS, WIDTH = 48, 96, 2, 4, 16

_SHARED: Mapping[str, Any] = {
    "vocab_size": WORDS,
    "hidden_size": HEADS * WIDTH,
    "intermediate_size": 96,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": 2,
    "max_position_embeddings": ROOM,
}
_TOKENS: Mapping[str, Any] = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def _made(name: str, config: str = "", **more: Any) -> tuple[Any, nn.Module]:
    made = getattr(transformers, config or f"{name}Config")(**{**_SHARED, **more}, attn_implementation="sdpa")
    return made, getattr(transformers, f"{name}ForCausalLM")(made)


def _gpt2() -> tuple[Any, nn.Module]:
    sizes = {"vocab_size": WORDS, "n_positions": ROOM, "n_embd": HEADS * WIDTH, "n_layer": LAYERS, "n_head": HEADS}
    made = transformers.GPT2Config(**sizes, attn_implementation="sdpa")
    return made, transformers.GPT2LMHeadModel(made)


ARCHITECTURES: Mapping[str, Callable[[], tuple[Any, nn.Module]]] = {
    "llama": lambda: _made("Llama", head_dim=WIDTH),
    "qwen3": lambda: _made("Qwen3", head_dim=WIDTH),
    "gemma3": lambda: _made(
        "Gemma3", config="Gemma3TextConfig", head_dim=WIDTH, sliding_window=ROOM, query_pre_attn_scalar=WIDTH
    ),
    "phi3": lambda: _made("Phi3", **_TOKENS),
    "gpt2": _gpt2,
}


class Step(nn.Module):
    """A model that reads tokens at positions, with its caches as inputs and outputs."""

    def __init__(self, config: Any, model: nn.Module) -> None:
        super().__init__()
        self.config, self.model = config, model

    def forward(self, ids: Tensor, position: Tensor, *caches: Tensor) -> tuple[Tensor, ...]:
        kept = transformers.StaticCache(config=self.config, max_cache_len=ROOM)
        for number, layer in enumerate(kept.layers):
            keys, values = caches[2 * number : 2 * number + 2]
            layer.lazy_initialization(keys, values)
            layer.keys, layer.values = keys, values
            layer.cumulative_length = position[0].clone()
        found = self.model(input_ids=ids, past_key_values=kept, position_ids=position[None], use_cache=True)
        return (found.logits, *(cache for layer in kept.layers for cache in (layer.keys, layer.values)))


def export(architecture: str, rows: int, folder: Path) -> Path:
    """The file of an architecture that reads this many tokens at once."""
    torch.manual_seed(0)
    config, model = ARCHITECTURES[architecture]()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    caches = [torch.zeros(1, heads, ROOM, WIDTH) for _ in range(2 * LAYERS)]
    names = [f"{number}.{kind}" for number in range(LAYERS) for kind in ("key", "value")]
    path = folder / f"{architecture}{rows}.onnx"
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what PyTorch says of its own parts
        program = torch.onnx.export(
            Step(config, model).eval(),
            (torch.zeros(1, rows, dtype=torch.int64), torch.arange(3, 3 + rows), *caches),
            dynamo=True,
            opset_version=18,
            verbose=False,
            input_names=["ids", "position", *(f"past.{name}" for name in names)],
            output_names=["logits", *(f"present.{name}" for name in names)],
        )
    assert program is not None
    program.save(str(path))
    return path
