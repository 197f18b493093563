"""Which networks are packed, predicted and measured, at which batches and levels."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from benchmarks import branching_networks
from benchmarks.gpu.blocks import BLOCKS, block_model
from benchmarks.gpu.branching import branching_model
from dsa_sched.frontend import Model, load_model
from dsa_sched.frontend.network.refusals import Judge

__all__ = [
    "BATCHES",
    "LARGE_NETWORKS",
    "LEVELS",
    "NETWORKS",
    "SMALL_BATCHES",
    "SMALL_NETWORKS",
    "batches_of",
    "loaded",
    "name_of",
]

NETWORKS = ("resnet50", "mobilenet_v2", "resnet18_tailor", "squeezenet", "inception_v1", "densenet121", "mt_dnn")
"""Of the zoo, and of benchmarks/branching_networks.py."""
WORDS: Mapping[str, tuple[int, tuple[str, ...]]] = {
    "gpt2": (512, ("input_ids",)),
    "gpt2-mini": (16, ("input_ids",)),
    "bert_base": (128, ("input_ids", "attention_mask", "token_type_ids")),
    "bert_base-mini": (16, ("input_ids", "attention_mask", "token_type_ids")),
}
"""Networks of the zoo that read texts: how many words of each, and the inputs."""
LARGE_NETWORKS = (
    "vit_b16",
    "swin_t",
    "whisper_encoder",
    "convnext_t",
    "efficientnet_b0",
    "conformer_m",
    "gpt2",
    "bert_base",
)
"""Packed where they are named, at `LARGE_BATCHES`."""
BATCHES = (1, 8, 32, 128)
LARGE_BATCHES = (1, 8, 32)
BRANCHING = "branching"
"""Of benchmarks/gpu/branching.py."""
SMALL_NETWORKS = ("mobilenet_v2-mini", "resnet18_tailor-mini", BRANCHING)
SMALL_BATCHES = (1, 2)
LEVELS = ("O0", "O3")
"""One kernel a layer; groups of layers, where the target has a kernel for them."""


def loaded(network: str, batch: int, judge: Judge) -> Model:
    """A network of the zoo, a file, or a model or block that is built here. Raises ModelError."""
    if network in branching_networks.NETWORKS:
        return load_model(branching_networks.NETWORKS[network](), {}, None, judge)
    if network in BLOCKS:
        return load_model(block_model(BLOCKS[network]), {}, batch, judge)
    if network in WORDS:
        count, inputs = WORDS[network]
        return load_model(network, dict.fromkeys(inputs, (batch, count)), None, judge)
    return load_model(branching_model() if network == BRANCHING else network, {}, batch, judge)


def batches_of(network: str, batches: tuple[int, ...]) -> tuple[int, ...]:
    """Networks that are built here have a batch of their own, large ones fewer."""
    if network in LARGE_NETWORKS:
        return tuple(batch for batch in batches if batch in LARGE_BATCHES)
    return (branching_networks.BATCH,) if network in branching_networks.NETWORKS else batches


def name_of(network: str) -> str:
    """Of a file its name alone."""
    return Path(network).stem
