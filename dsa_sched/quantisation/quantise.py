"""Post-training quantisation as a whole.

model, QuantizeOptions --prepared--> --choice--> --calibrated--> [--searched-->] QuantizedNetwork: model, errors
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import onnx

from dsa_sched.frontend.load import read_source
from dsa_sched.io.atomic_write import write_whole
from dsa_sched.quantisation.choice import PRODUCTS, Choices, IntegerChoice, QuantisedLayer, kept_layers
from dsa_sched.quantisation.errors import LayerError, OutputError, OutputErrors, measured
from dsa_sched.quantisation.inputs import SEEDED, calibration_inputs
from dsa_sched.quantisation.prepared import prepared
from dsa_sched.quantisation.quantiser import quantised
from dsa_sched.quantisation.ranges import METHODS, InputSets, ValueRange, tied_ranges, value_ranges
from dsa_sched.quantisation.search import FloatSearch, searched
from hw_models.errors import ModelError, size_text

LARGEST_FILE_BYTES = (2 << 30) - 1
"""Largest file that protobuf reads and writes."""

DEFAULT_INPUTS = 8
"""Number of inputs that are drawn."""


@dataclass(frozen=True, slots=True)
class QuantizeOptions:
    """How a network is quantised. `calibrate` is a folder of .npz files, an .npz file, or the word seeded, for which
    `inputs` sets are drawn with `seed`; it may be left out with `weights_only`, whose errors are then measured on drawn
    inputs. `keep_float` has operator types and names of nodes. With a `bound`, more layers stay in floating point until
    the relative L2 error of the outputs is at most that. With `per_layer`, all weights of a layer have one scale."""

    calibrate: str | Path | None = None
    method: str = "minmax"
    keep_float: tuple[str, ...] = ()
    weights_only: bool = False
    bound: float | None = None
    inputs: int = DEFAULT_INPUTS
    seed: int = 0
    shapes: tuple[tuple[str, tuple[int, ...]], ...] = ()
    batch: int | None = None
    bindings: tuple[tuple[str, tuple[int | float, ...]], ...] = ()
    per_layer: bool = False


@dataclass(frozen=True, slots=True)
class QuantizedNetwork:
    """A quantised network and how far it is from the file `source`. `method` is empty with weights only."""

    model: onnx.ModelProto
    source: str
    method: str
    weights_only: bool
    inputs: int
    layers: tuple[LayerError, ...]
    outputs: tuple[OutputError, ...]
    search: FloatSearch | None = None

    @property
    def relative_l2(self) -> float:
        """The error of the output that is worst."""
        return max(output.relative_l2 for output in self.outputs)

    @property
    def float_layers(self) -> tuple[str, ...]:
        """Layers that could be quantised and stay in floating point."""
        return tuple(layer.name for layer in self.layers if layer.in_float)

    def save(self, path: Path) -> None:
        """Write the ONNX file, whole or not at all. Raises ModelError for one that is too large, UserError where it
        cannot be written."""
        size = self.model.ByteSize()
        if size > LARGEST_FILE_BYTES:
            raise ModelError(str(path), needs=f"at most {size_text(LARGEST_FILE_BYTES)}", has=size_text(size))
        write_whole(path, lambda stream: stream.write(self.model.SerializeToString(deterministic=True)))


def quantised_network(
    model: str | Path | onnx.ModelProto, options: QuantizeOptions, say: Callable[[str], None] = lambda _step: None
) -> QuantizedNetwork:
    """Quantise a network: a file, one of the zoo by name, or one in memory, which is not changed. Raises ModelError."""
    _require_options(options)
    who = (model.graph.name or "model") if isinstance(model, onnx.ModelProto) else str(model)
    say("reading the model")
    shapes, bindings = dict(options.shapes), dict(options.bindings)
    source = read_source(_copied(model), shapes, options.batch, bindings, known="standard").model
    network = prepared(source, who)
    choices = Choices(network, options.weights_only)
    forced = kept_layers(choices, source, options.keep_float)
    whole = choices.without(forced)
    if not whole.layers:
        raise ModelError(
            who,
            needs=f"an operator that can be quantised: {', '.join(PRODUCTS)} in float32 with constant weights",
            has="none" if not forced else f"{len(forced)}, which --keep-float leaves in floating point",
        )
    inputs = calibration_inputs(source, _inputs_of(options), options.inputs, options.seed)
    shown = _shown(choices, whole, forced)
    job = _Job(source, network, choices, forced, inputs, options, say)
    ranges = {} if options.weights_only else value_ranges(network, whole, inputs, options.method, say)
    search = job.search(ranges, tuple(layer.name for layer in shown if layer.name not in forced))
    choice = choices.without({*forced, *search.kept}) if search else whole
    say("quantising")
    made = job.version(choice, ranges)
    layers, outputs = measured(source, made, shown, choice, inputs, say)
    method = "" if options.weights_only else options.method
    return QuantizedNetwork(made, who, method, options.weights_only, len(inputs), layers, outputs, search)


@dataclass(frozen=True, slots=True)
class _Job:
    source: onnx.ModelProto
    network: onnx.ModelProto
    choices: Choices
    forced: frozenset[str]
    inputs: InputSets
    options: QuantizeOptions
    say: Callable[[str], None]

    def version(self, choice: IntegerChoice, ranges: dict[str, ValueRange]) -> onnx.ModelProto:
        tied = {} if self.options.weights_only else tied_ranges(ranges, choice)
        return quantised(self.network, choice, tied, self.options.weights_only, self.options.per_layer)

    def search(self, ranges: dict[str, ValueRange], layers: tuple[str, ...]) -> FloatSearch | None:
        """The search that a bound asks for."""
        if self.options.bound is None:
            return None
        self.say("computing the outputs in floating point")
        errors = OutputErrors(self.source, self.inputs)
        return searched(
            layers,
            lambda layer: errors.of(self.version(self.choices.alone(layer), ranges)),
            lambda kept: errors.of(self.version(self.choices.without(self.forced | kept), ranges)),
            self.options.bound,
            self.say,
        )


def _require_options(options: QuantizeOptions) -> None:
    if options.method not in METHODS:
        raise ModelError("--method", needs=f"one of {', '.join(METHODS)}", has=options.method)
    if options.bound is not None and not options.bound > 0:
        raise ModelError("--bound", needs="a number above 0", has=f"{options.bound:g}")
    if options.inputs < 1:
        raise ModelError("--inputs", needs="at least 1", has=str(options.inputs))


def _inputs_of(options: QuantizeOptions) -> str | Path | None:
    return SEEDED if options.calibrate is None and options.weights_only else options.calibrate


def _copied(model: str | Path | onnx.ModelProto) -> str | Path | onnx.ModelProto:
    if not isinstance(model, onnx.ModelProto):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


def _shown(choices: Choices, whole: IntegerChoice, forced: frozenset[str]) -> tuple[QuantisedLayer, ...]:
    """Layers of the report: those that can compute on integers here, and those that are kept in floating point."""
    return tuple(layer for layer in choices.layers if layer.name in whole.layers | forced)
