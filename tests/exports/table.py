"""Which exports there are and which of them do not compile yet. Without PyTorch, so that docs can be held to it."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["EXPORTERS", "EXPORTS", "NAMES", "REFUSED", "Which"]

NAMES = (
    "bert",
    "roberta",
    "distilbert",
    "gpt2",
    "llama_prefill",
    "t5_encoder",
    "vit",
    "swin",
    "convnext",
    "conformer",
    "whisper_encoder",
    "wav2vec2",
    "dlrm",
    "wide_and_deep",
    "lstm_tagger",
    "gru_tagger",
    "unet",
    "resnet",
    "mobilenet_v2",
    "efficientnet",
    "mlp_mixer",
    "densenet",
    "squeezenet",
    "video_net",
)
"""Those of `architectures.py`."""

EXPORTERS = ("script", "dynamo")
"""TorchScript's, which `torch.onnx.export(dynamo=False)` uses, and the newer one."""

Which = tuple[str, str]
"""An architecture and an exporter."""

EXPORTS: tuple[Which, ...] = tuple((name, exporter) for name in NAMES for exporter in EXPORTERS)

REFUSED: Mapping[Which, str] = {}
"""Those that do not compile, with a part of what the compiler says."""
