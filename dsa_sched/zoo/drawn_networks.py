"""Networks whose weights are drawn and not calibrated, and the extents that open dimensions were published with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import onnx

from dsa_sched.zoo.topologies.bert import (
    bert_base_mini_topology,
    bert_base_topology,
    bert_large_mini_topology,
    bert_large_topology,
)
from dsa_sched.zoo.topologies.conformer import conformer_m_mini_topology, conformer_m_topology
from dsa_sched.zoo.topologies.convnext import convnext_t_mini_topology, convnext_t_topology
from dsa_sched.zoo.topologies.dlrm import dlrm_mini_topology, dlrm_topology
from dsa_sched.zoo.topologies.gpt2 import gpt2_mini_topology, gpt2_topology
from dsa_sched.zoo.topologies.siamese import siamese_mini_topology, siamese_topology
from dsa_sched.zoo.topologies.swin import swin_t_mini_topology, swin_t_topology
from dsa_sched.zoo.topologies.vit import (
    vit_b16_384_mini_topology,
    vit_b16_384_topology,
    vit_b16_mini_topology,
    vit_b16_topology,
)
from dsa_sched.zoo.topologies.whisper import whisper_encoder_mini_topology, whisper_encoder_topology
from dsa_sched.zoo.topologies.wide_deep import wide_deep_mini_topology, wide_deep_topology

__all__ = ["DRAWN", "Drawn"]


@dataclass(frozen=True, slots=True)
class Drawn:
    """`shapes` are extents of inputs that the model file leaves open, as the network was published."""

    topology: Callable[[], onnx.ModelProto]
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def _texts(words: int) -> Mapping[str, tuple[int, ...]]:
    """One text of so many words for BERT."""
    return dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), (1, words))


DRAWN: Mapping[str, Drawn] = MappingProxyType(
    {
        "bert_base": Drawn(bert_base_topology, _texts(128)),
        "bert_base-mini": Drawn(bert_base_mini_topology),
        "bert_large": Drawn(bert_large_topology, _texts(384)),
        "bert_large-mini": Drawn(bert_large_mini_topology),
        "conformer_m": Drawn(conformer_m_topology),
        "conformer_m-mini": Drawn(conformer_m_mini_topology),
        "convnext_t": Drawn(convnext_t_topology),
        "convnext_t-mini": Drawn(convnext_t_mini_topology),
        "dlrm": Drawn(dlrm_topology),
        "dlrm-mini": Drawn(dlrm_mini_topology),
        "gpt2": Drawn(gpt2_topology, {"input_ids": (1, 1024)}),
        "gpt2-mini": Drawn(gpt2_mini_topology),
        "siamese": Drawn(siamese_topology),
        "siamese-mini": Drawn(siamese_mini_topology),
        "swin_t": Drawn(swin_t_topology),
        "swin_t-mini": Drawn(swin_t_mini_topology),
        "vit_b16": Drawn(vit_b16_topology),
        "vit_b16-mini": Drawn(vit_b16_mini_topology),
        "vit_b16_384": Drawn(vit_b16_384_topology),
        "vit_b16_384-mini": Drawn(vit_b16_384_mini_topology),
        "whisper_encoder": Drawn(whisper_encoder_topology),
        "whisper_encoder-mini": Drawn(whisper_encoder_mini_topology),
        "wide_deep": Drawn(wide_deep_topology),
        "wide_deep-mini": Drawn(wide_deep_mini_topology),
    }
)
