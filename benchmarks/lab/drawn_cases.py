"""Drawn cases for studies of prices: a network, and a chip that differs from the stcp920 in up to three features.

    seed, number --> DrawnCase: network (of the zoo, or of a few generated layers), batch, chip, its odd features

A generated network is a chain of windows, pools and activations with branches that meet again, and may end in a
classifier with a softmax, as tests/fuzz draws them. Equal seeds give equal cases.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.lab.resizing import resized
from hw_models.chip import Chip
from hw_models.loading import load_chip
from hw_models.parts import Link, MatrixEngine, VectorEngine

__all__ = ["FEATURES", "MINIS", "DrawnCase", "drawn_case", "drawn_chip", "drawn_network", "small_team_chip"]

KIB = 1024
OPSET = 18

MINIS = (
    "bert_base-mini",
    "convnext_t-mini",
    "dlrm-mini",
    "efficientnet_b0-mini",
    "gpt2-mini",
    "mobilenet_v2-mini",
    "resnet18_tailor-mini",
    "siamese-mini",
    "vit_b16-mini",
    "whisper_encoder-mini",
    "wide_deep-mini",
)
"""Networks of the zoo whose plans of all levels are made in a few seconds together."""

BATCHES = (1, 1, 2, 4)
MOST_FEATURES = 3

Change: TypeAlias = Callable[[Chip, random.Random], Chip]


@dataclass(frozen=True, slots=True)
class DrawnCase:
    """A network (a name of the zoo, or a model), its batch, and a chip with the names of its odd features."""

    name: str
    network: str | onnx.ModelProto
    batch: int | None
    chip: Chip
    features: tuple[str, ...]


def drawn_case(seed: int, number: int) -> DrawnCase:
    """The case of that number; two of three have a network of the zoo."""
    rng = random.Random(f"{seed} {number}")
    chip, features = drawn_chip(rng)
    if rng.randrange(3):
        name = rng.choice(MINIS)
        return DrawnCase(name, name, None, chip, features)
    model = drawn_network(rng)
    return DrawnCase(f"drawn-{number}", model, rng.choice(BATCHES), chip, features)


# Chips


def drawn_chip(rng: random.Random) -> tuple[Chip, tuple[str, ...]]:
    """A chip with none to three odd features, and their names."""
    chip = load_chip("stcp920")
    features = tuple(sorted(rng.sample(sorted(FEATURES), rng.randint(0, MOST_FEATURES))))
    for name in features:
        chip = FEATURES[name](chip, rng)
    return chip, features


def small_team_chip() -> Chip:
    """Four cores with an array of 32 x 32 cells and 768 KiB of L1 each, whose exchanges are slow beside their work."""
    rng = random.Random(0)
    chip = resized(load_chip("stcp920"), "small-team", {}, {("L1", "data"): 512 * KIB, ("L1", "weights"): 256 * KIB})
    return _exchanges(_array(chip.model_copy(update={"cores_per_cluster": 4}), rng, (32, 32)), rng)


def _cores(chip: Chip, rng: random.Random) -> Chip:
    return chip.model_copy(update={"cores_per_cluster": rng.choice((1, 2, 3, 4, 6))})


def _array(chip: Chip, rng: random.Random, cells: tuple[int, int] | None = None) -> Chip:
    pixels, channels = cells or rng.choice(((16, 16), (32, 32), (128, 32), (16, 64), (64, 128)))
    engines = tuple(
        engine.model_copy(update={"array_pixels": pixels, "array_channels": channels})
        if isinstance(engine, MatrixEngine)
        else engine
        for engine in chip.engines
    )
    return chip.model_copy(update={"engines": engines})


def _lanes(chip: Chip, rng: random.Random) -> Chip:
    lanes = rng.choice((16, 32, 128, 256))
    engines = tuple(
        engine.model_copy(update={"lanes": lanes}) if isinstance(engine, VectorEngine) else engine
        for engine in chip.engines
    )
    return chip.model_copy(update={"engines": engines})


def _l1(chip: Chip, rng: random.Random) -> Chip:
    data, weights = rng.choice(((64, 32), (128, 64), (256, 128), (512, 256), (2048, 512)))
    return resized(chip, chip.name, {}, {("L1", "data"): data * KIB, ("L1", "weights"): weights * KIB})


def _llb(chip: Chip, rng: random.Random) -> Chip:
    return resized(chip, chip.name, {"LLB": rng.choice((512, 1024, 2048, 16384)) * KIB})


def _exchanges(chip: Chip, _rng: random.Random) -> Chip:
    """Every exchange is long work of the transfer engine: one narrow way per core, with a long start-up."""

    def slow(link: Link) -> dict[str, object]:
        wanted = {link.source, link.destination} == {"LLB", "L1"}
        return {"core_bandwidth_bytes_per_cycle": 16.0, "latency_cycles": 200.0} if wanted else {}

    return _with_links(chip, slow)


def _main(chip: Chip, rng: random.Random) -> Chip:
    rate = rng.choice((8.0, 54.0, 200.0))

    def changed(link: Link) -> dict[str, object]:
        return {"bandwidth_bytes_per_cycle": rate} if "DDR" in (link.source, link.destination) else {}

    memories = tuple(
        memory.model_copy(update={"bandwidth_bytes_per_cycle": rate}) if memory.name == "DDR" else memory
        for memory in chip.memories
    )
    return _with_links(chip.model_copy(update={"memories": memories}), changed)


def _latency(chip: Chip, rng: random.Random) -> Chip:
    factor = rng.choice((0.1, 4.0, 8.0))

    def changed(link: Link) -> dict[str, object]:
        return {"latency_cycles": factor * link.latency_cycles} if {link.source, link.destination} & {"LLB"} else {}

    return _with_links(chip, changed)


def _sync(chip: Chip, rng: random.Random) -> Chip:
    return _with_assumed(chip, sync_cycles=rng.choice((50.0, 200.0, 1000.0)))


def _scalar(chip: Chip, rng: random.Random) -> Chip:
    return _with_assumed(chip, scalar_instruction_cycles=rng.choice((0.25, 2.0, 4.0)))


def _queue(chip: Chip, rng: random.Random) -> Chip:
    return _with_assumed(chip, queue_depth=rng.choice((1, 2, 8)))


def _descriptors(chip: Chip, rng: random.Random) -> Chip:
    return _with_assumed(chip, dma_descriptor_cycles=rng.choice((10.0, 100.0)))


def _with_links(chip: Chip, change: Callable[[Link], dict[str, object]]) -> Chip:
    return chip.model_copy(update={"links": tuple(link.model_copy(update=change(link)) for link in chip.links)})


def _with_assumed(chip: Chip, **numbers: float) -> Chip:
    return chip.model_copy(update={"assumed": chip.assumed.model_copy(update=numbers)})


FEATURES: Mapping[str, Change] = MappingProxyType({
    "array": _array,
    "cores": _cores,
    "descriptors": _descriptors,
    "exchanges": _exchanges,
    "L1": _l1,
    "lanes": _lanes,
    "latency": _latency,
    "LLB": _llb,
    "main memory": _main,
    "queue": _queue,
    "scalar": _scalar,
    "sync": _sync,
})  # fmt: skip


# Networks


class _Drawing:
    """A network while it grows; values are images of (1, channels, rows, columns)."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.weights = rng, np.random.default_rng(rng.randrange(1 << 16))
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.extents: dict[str, tuple[int, int]] = {}

    def node(self, kind: str, inputs: list[str], channels: int, extent: int, **settings: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name, **settings))
        self.extents[name] = channels, extent
        return name

    def constant(self, *shape: int, fan_in: int) -> str:
        name = f"c{len(self.constants)}"
        drawn: npt.NDArray[np.generic] = (self.weights.standard_normal(shape) / np.sqrt(fan_in)).astype(np.float32)
        self.constants.append(numpy_helper.from_array(drawn, name))
        return name

    def conv(self, x: str, outputs: int, window: int, stride: int = 1, depthwise: bool = False) -> str:
        channels, extent = self.extents[x]
        group, outputs = (channels, channels) if depthwise else (1, outputs)
        weights = self.constant(outputs, channels // group, window, window, fan_in=window * window * channels // group)
        pad = window // 2
        settings: dict[str, Any] = {"pads": [pad] * 4, "strides": [stride] * 2, "group": group}
        made = self.node("Conv", [x, weights], outputs, -(-extent // stride), **settings)
        return self.node("Relu", [made], outputs, -(-extent // stride)) if self.rng.randrange(4) else made

    def step(self, x: str) -> str:
        """One layer, or two branches that meet again, after the value."""
        channels, extent = self.extents[x]
        match self.rng.choice(("conv", "conv", "depthwise", "down", "pool", "add", "concat", "softmax")):
            case "conv":
                return self.conv(x, self.rng.choice((8, 16, 32, 64)), self.rng.choice((1, 3, 5)))
            case "depthwise":
                return self.conv(x, channels, 3, depthwise=True)
            case "down" if extent >= 8:
                return self.conv(x, min(128, 2 * channels), 3, 2)
            case "pool" if extent >= 8:
                return self.node("MaxPool", [x], channels, extent // 2, kernel_shape=[2, 2], strides=[2, 2])
            case "add":
                return self.node("Add", [x, self.conv(self.conv(x, channels, 3), channels, 1)], channels, extent)
            case "concat":
                sides = [self.conv(x, self.rng.choice((8, 16)), window) for window in (1, 3)]
                return self.node("Concat", sides, sum(self.extents[side][0] for side in sides), extent, axis=1)
            case _:
                return self.node("Softmax", [x], channels, extent, axis=1)

    def classifier(self, x: str) -> str:
        channels, _ = self.extents[x]
        pooled = self.node("GlobalAveragePool", [x], channels, 1)
        flat = self.node("Flatten", [pooled], channels, 1)
        classes = self.rng.choice((10, 100, 1000))
        made = self.node("MatMul", [flat, self.constant(channels, classes, fan_in=channels)], classes, 1)
        return self.node("Softmax", [made], classes, 1, axis=1)


def drawn_network(rng: random.Random) -> onnx.ModelProto:
    """A model of two to nine steps on one image."""
    drawing = _Drawing(rng)
    channels, extent = rng.choice((3, 8, 16, 32)), rng.choice((7, 14, 16, 28, 32, 56))
    drawing.extents["x"] = channels, extent
    x = "x"
    for _ in range(rng.randint(2, 9)):
        x = drawing.step(x)
    shape: tuple[int, ...] = (1, drawing.extents[x][0], drawing.extents[x][1], drawing.extents[x][1])
    if rng.randrange(2):
        x = drawing.classifier(x)
        shape = 1, drawing.extents[x][0]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, channels, extent, extent))]
    outputs = [helper.make_tensor_value_info(x, TensorProto.FLOAT, shape)]
    graph = helper.make_graph(drawing.nodes, "drawn", inputs, outputs, drawing.constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
