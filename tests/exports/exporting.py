"""An architecture as a file: weights seeded, written by one of PyTorch's two exporters, with inputs beside it.

name, exporter --export--> folder/name-exporter.onnx, folder/input0.npz, folder/input1.npz

`python -m tests.exports.exporting FOLDER` writes all of them, each into a folder of its own.
"""

from __future__ import annotations

import contextlib
import io
import logging
import math
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Generator, Tensor, nn

from tests.exports.architectures import ARCHITECTURES
from tests.exports.table import EXPORTS, NAMES

__all__ = ["Export", "export"]

OPSET = 17
"""That TorchScript's exporter writes; the newer one has its own."""

INPUTS = 2

BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


@dataclass(frozen=True, slots=True)
class Export:
    """The file, and files with a set of inputs each."""

    model: Path
    inputs: tuple[Path, ...]
    attentions: int


def export(name: str, exporter: str, folder: Path) -> Export:
    """Write an architecture. The same bytes each time, but for what the exporter itself draws."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    network = ARCHITECTURES[name]()
    module = network.module.eval()
    seed_weights(module, Generator().manual_seed(1))
    draws = [network.inputs(Generator().manual_seed(2 + number)) for number in range(INPUTS)]
    path = folder / f"{name}-{exporter}.onnx"
    write(module, draws[0], exporter, path)
    files = tuple(save(draw, folder / f"input{number}.npz") for number, draw in enumerate(draws))
    return Export(path, files, network.attentions)


def seed_weights(module: nn.Module, generator: Generator) -> None:
    """Weights that keep the size of values and depend on the seed alone: initial ones make most blocks do nothing."""
    with torch.no_grad():
        for name, weight in module.named_parameters():
            weight.copy_(seeded(name, weight, generator))
        for part in module.modules():
            if isinstance(part, nn.Embedding):
                part.weight.copy_(torch.randn(part.weight.shape, generator=generator))
            if isinstance(part, BATCH_NORMS):
                part.running_mean.copy_(0.1 * torch.randn(part.num_features, generator=generator))
                part.running_var.copy_(0.5 + torch.rand(part.num_features, generator=generator))


def seeded(name: str, weight: Tensor, generator: Generator) -> Tensor:
    if weight.ndim > 1:
        return torch.randn(weight.shape, generator=generator) / math.sqrt(math.prod(weight.shape[1:]))
    if "bias" in name:
        return 0.1 * torch.randn(weight.shape, generator=generator)
    return 0.5 + torch.rand(weight.shape, generator=generator)


def write(module: nn.Module, inputs: dict[str, Tensor], exporter: str, path: Path) -> None:
    """Both exporters warn about themselves, and the newer one reports on the standard output."""
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    options = (
        {"dynamo": True, "external_data": False} if exporter == "dynamo" else {"dynamo": False, "opset_version": OPSET}
    )
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module, tuple(inputs.values()), path, input_names=list(inputs), output_names=["answer"], **options
        )


def save(draw: dict[str, Tensor], path: Path) -> Path:
    np.savez(path, **{name: tensor.numpy() for name, tensor in draw.items()})
    return path


def main(arguments: list[str]) -> int:
    """Write every export, or those of the architectures that are named behind the folder."""
    if not arguments:
        print(__doc__)
        return 2
    for name, exporter in EXPORTS:
        if name in (arguments[1:] or NAMES):
            folder = Path(arguments[0]) / f"{name}-{exporter}"
            folder.mkdir(parents=True, exist_ok=True)
            print(export(name, exporter, folder).model)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
