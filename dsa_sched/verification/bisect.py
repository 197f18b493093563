"""Narrowing a failing network to the smallest run of its ONNX nodes that still fails the same check.

    nodes [0, n) fail  --halve the end, halve the start, trim-->  nodes [a, b) fail, [a + 1, b) and [a, b - 1) do not

Every part is a model by itself. Values that its nodes read from outside become inputs, filled with the reference's
values; values that do not depend on the inputs of the whole, and integers (shapes, axes), become constants, as they
would after folding. Outputs are the values that the rest of the model reads or gives out. A part that cannot be
compiled counts as one that does not fail.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import gettempdir
from typing import IO

import numpy as np
import onnx
from onnx import helper, numpy_helper

from codegen.source_map import printable
from codegen.target import Execution
from dsa_sched.artifact.format import Artifact
from dsa_sched.artifact.runner import execute
from dsa_sched.frontend import load_model
from dsa_sched.io.atomic_write import require_folder, write_whole
from dsa_sched.io.npz import write_arrays
from dsa_sched.pipeline.driver import compile_model
from dsa_sched.stages.compilation import CompileOptions
from dsa_sched.stages.targets import target_of, with_defaults
from dsa_sched.verification.evidence import Array, Feed, Loads
from dsa_sched.verification.extreme_inputs import extreme_inputs
from dsa_sched.verification.inputs import seeded_or_given
from dsa_sched.verification.onnx_reference import OnnxReference
from dsa_sched.verification.verdict import LayerResult, VerifyReport
from dsa_sched.verification.verify import VerifyOptions, reference_builds, verify_compiled
from hw_models.chip import Chip
from hw_models.errors import TargetError, UserError
from hw_models.scratch import scratch_folder
from partitioner.planners.levels import IMAGES, SEGMENTS, Auto, planner_or_auto

MODEL = "failing.onnx"
REASON = "failure.txt"

OLDEST_IR = 4
"""First IR version in which constants need not be listed among the inputs."""


@dataclass(frozen=True, slots=True)
class SubgraphPart:
    """A model and one set of inputs for each input of the whole."""

    model: onnx.ModelProto
    feeds: tuple[Feed, ...]


@dataclass(frozen=True, slots=True)
class Bisection:
    """Bisection result: nodes [`start`, `end`) of `total` fail `check`; `failure` is the sentence about it; `tried`
    parts were judged.
    """

    part: SubgraphPart
    start: int
    end: int
    total: int
    check: str
    failure: str
    tried: int

    @property
    def line(self) -> str:
        """One line about what failed, with unprintable characters of names escaped."""
        nodes = self.part.model.graph.node
        shown = [f"{node.op_type} {node.name}" for node in (nodes if len(nodes) <= 3 else (nodes[0], nodes[-1]))]
        listed = ", ".join(shown) if len(nodes) <= 3 else " to ".join(shown)
        said = " ".join(f"{len(nodes)} of {self.total} nodes ({listed}): {self.failure}".split())
        return printable(said)


def as_judged(options: CompileOptions, report: VerifyReport, chip: Chip) -> CompileOptions:
    """The options by which the whole model was judged: those of the level that auto chose for it, because auto may
    choose another one for a part. Segments name layers of the whole: a part of it is left to auto again.
    """
    if not isinstance(options.planner, Auto) or report.level in (IMAGES, SEGMENTS):
        return options
    return replace(with_defaults(options, target_of(chip)), planner=planner_or_auto(report.level))


def failing_check(report: VerifyReport) -> tuple[str, str]:
    """The most local check that a report fails, and its sentence; ("", "") for none.

    The order is: samples, layer, constants, level, logits. The most local check comes first, because a part that fails
    it says more than one that fails at its outputs.
    """
    if not report.failures:
        return "", ""
    for layer in report.layers:
        if layer.samples_wrong:
            return "samples", _sentence(report, f"layer {layer.name}: {layer.samples_wrong} of ")
    for layer in report.layers:
        if _imprecise(layer):
            return "layer", _sentence(report, f"layer {layer.name}: relative error ")
    for check, start in (("constants", "constant "), ("level", "level ")):
        found = [failure for failure in report.failures if failure.startswith(start)]
        if found:
            return check, found[0]
    return "logits", report.failures[0]


def _imprecise(layer: LayerResult) -> bool:
    return layer.wrong_alone


def _sentence(report: VerifyReport, start: str) -> str:
    return next((failure for failure in report.failures if failure.startswith(start)), report.failures[0])


def bisect(
    source: str | Path,
    chip: str | Path | Chip,
    compile_options: CompileOptions,
    options: VerifyOptions,
    runner: str | None = None,
    report: VerifyReport | None = None,
    progress: Callable[[str], None] = lambda _step: None,
) -> Bisection | None:
    """The smallest failing part of a model that fails `verify` under the same options; None when nothing fails again.

    `report` is that of the failing verification; None when the run ended in a fault, which is then what the search
    looks for. Raises UserError for a model that cannot be read.
    """
    model = load_model(
        source, dict(compile_options.shapes), compile_options.batch, bindings=dict(compile_options.bindings)
    ).source
    check = failing_check(report)[0] if report else "fault"
    feeds = seeded_or_given(model, options).feeds
    extreme = _failing_extreme(report, check)
    if extreme:
        found = next(each for each in extreme_inputs(model, feeds, options.seed) if each.label == extreme)
        feeds = (found.feed, found.other)
    reference = OnnxReference(model)
    values = tuple(reference.values(feed) for feed in feeds)
    plain = replace(compile_options, batch=None, shapes=(), bindings=(), isolated=False, keep_values=True)
    seen: dict[tuple[int, int], tuple[str, str]] = {}
    total = len(model.graph.node)
    with scratch_folder(Path(gettempdir())) as scratch:

        def fails(start: int, end: int) -> bool:
            if (start, end) not in seen:
                part = cut(model, values, start, end)
                progress(f"bisecting: nodes {start + 1} to {end} of {total}")
                seen[start, end] = _judge_part(part, scratch.path, chip, plain, options, runner) if part else ("", "")
            failed = seen[start, end][0]
            return failed not in ("", "fault") if extreme else failed == check

        start, end = narrow(total, fails, _suspects(model, report))
        part = cut(model, values, start, end)
        if part is None or not fails(start, end):
            return None
    return Bisection(part, start, end, total, *seen[start, end], len(seen))


def _failing_extreme(report: VerifyReport | None, check: str) -> str:
    """The label of the inputs of extreme size that are to be looked at: where nothing else fails. Layers of such inputs
    were not judged, so that any check of a part may fail for them."""
    if report is None or check != "logits":
        return ""
    labels = [result.label for result in report.extremes if result.outcome == "failed"]
    return next((label for label in labels if report.failures[0].startswith(f"{label}: ")), "")


def narrow(total: int, fails: Callable[[int, int], bool], suspects: tuple[int, int] | None = None) -> tuple[int, int]:
    """The range [start, end) that fails while neither end can be trimmed, given that [0, `total`) fails.

    `suspects` is tried first. Where failing is not monotonic, some other minimal range may be found.
    """
    start, end = suspects if suspects and fails(*suspects) else (0, total)
    passing = start
    while end - passing > 1:
        middle = (passing + end) // 2
        passing, end = (passing, middle) if fails(start, middle) else (middle, end)
    beyond = end
    while beyond - start > 1:
        middle = (start + beyond) // 2
        start, beyond = (middle, beyond) if fails(middle, end) else (start, middle)
    while end - start > 1:
        if fails(start + 1, end):
            start += 1
        elif fails(start, end - 1):
            end -= 1
        else:
            break
    return start, end


def _suspects(model: onnx.ModelProto, report: VerifyReport | None) -> tuple[int, int] | None:
    """Nodes of the first layer that fails by itself."""
    layers = [layer for layer in (report.layers if report else ()) if layer.samples_wrong or _imprecise(layer)]
    if not layers:
        return None
    name, output = layers[0].name.split("::")[0], layers[0].output.split("::")[0]
    first = [position for position, node in enumerate(model.graph.node) if node.name == name]
    last = [position for position, node in enumerate(model.graph.node) if output in node.output]
    return (first[0], last[0] + 1) if first and last and first[0] <= last[0] else None


def cut(model: onnx.ModelProto, values: tuple[Feed, ...], start: int, end: int) -> SubgraphPart | None:
    """Nodes [start, end) of a checked model; None when they read or give out nothing that depends on the inputs.

    `values` holds, for each input of the whole, every value by name.
    """
    nodes = model.graph.node[start:end]
    initializers = {tensor.name: tensor for tensor in model.graph.initializer}
    varying = _varying(model, initializers)
    inside = {name for node in nodes for name in node.output if name}
    outside = dict.fromkeys(name for node in nodes for name in node.input if name and name not in inside)
    read_later = {name for node in (*model.graph.node[:start], *model.graph.node[end:]) for name in node.input}
    given = {item.name for item in model.graph.output} | read_later
    inputs = [n for n in outside if n not in initializers and n in varying and _floating(values[0][n])]
    outputs = [
        name for node in nodes for name in node.output
        if name in given and name in varying and name in values[0] and _floating(values[0][name])
    ]  # fmt: skip
    if not inputs or not outputs:
        return None
    constants = [
        initializers[name] if name in initializers else numpy_helper.from_array(np.asarray(values[0][name]), name)
        for name in outside
        if name not in inputs
    ]
    graph = helper.make_graph(
        nodes, "failing", [_typed(n, values[0]) for n in inputs], [_typed(n, values[0]) for n in outputs], constants
    )
    part = helper.make_model(graph, opset_imports=model.opset_import, ir_version=max(model.ir_version, OLDEST_IR))
    return SubgraphPart(part, tuple({name: of_input[name] for name in inputs} for of_input in values))


def _varying(model: onnx.ModelProto, initializers: Mapping[str, onnx.TensorProto]) -> set[str]:
    """Values that depend on an input of the model by more than its shape."""
    varying = {item.name for item in model.graph.input if item.name not in initializers}
    for node in model.graph.node:
        if node.op_type not in ("Shape", "Size") and any(name in varying for name in node.input):
            varying.update(node.output)
    return varying


def _floating(array: Array) -> bool:
    return array.dtype.kind == "f"


def _typed(name: str, values: Feed) -> onnx.ValueInfoProto:
    array = values[name]
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


def _judge_part(
    part: SubgraphPart,
    folder: Path,
    chip: str | Path | Chip,
    compile_options: CompileOptions,
    options: VerifyOptions,
    runner: str | None,
) -> tuple[str, str]:
    """Compile a part from its file, run it on its inputs: (the most local check that fails, its sentence)."""

    def run(artifact: Artifact, loads: Loads, dumps: tuple[tuple[int, int], ...], seed: int) -> Execution:
        return execute(artifact, loads, dumps, runner, seed)

    file = folder / MODEL
    file.write_bytes(part.model.SerializeToString())
    try:
        whole = compile_model(file, chip, compile_options)
        isolated, plain = reference_builds(whole)
    except UserError:
        return "", ""
    try:
        return failing_check(verify_compiled(whole, isolated, part.feeds, options, run, plain=plain))
    except TargetError as fault:
        return "fault", str(fault)
    except UserError:
        return "", ""


def require_place(folder: Path) -> None:
    """Refuse, before any work, a folder that holds other things or cannot be written. Raises UserError."""
    try:
        other = folder.exists() and not (folder / MODEL).is_file() and (not folder.is_dir() or any(folder.iterdir()))
        reason = "other files" if other else ""
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
    if reason:
        raise UserError(
            str(folder), needs="a folder that is new, empty or of an earlier --bisect", has=reason,
            change="choose another folder with -o",
        )  # fmt: skip
    require_folder(folder)


def save(found: Bisection, folder: Path) -> tuple[Path, ...]:
    """Write the model, one .npz per input and the line about the failure; returns the files. Raises UserError.

    File names are ours, whatever the model calls its values.
    """
    require_place(folder)
    files = {folder / f"input{number}.npz": feed for number, feed in enumerate(found.part.feeds)}
    for path, feed in files.items():
        write_arrays(path, feed)
    model = found.part.model.SerializeToString(deterministic=True)
    texts = {folder / REASON: f"{found.line}\n".encode(), folder / MODEL: model}
    for path, data in texts.items():
        write_whole(path, partial(_fill, data))
    return (folder / MODEL, *files, folder / REASON)


def _fill(data: bytes, stream: IO[bytes]) -> None:
    stream.write(data)
