"""Decisions of quantised networks on the chip, next to exact arithmetic.

    python benchmarks/quantised_decisions.py [FILE.onnx...] [--inputs N] [--level LEVEL] [--check]

Without files, ResNet-50 of the zoo is quantised by `dsa_sched.quantize` on drawn inputs and judged on 64 others, and
table and JSON go to benchmarks/results/quantised_decisions.{md,json}. Files are quantised networks with one input;
their table is only printed. Every input is run on the simulator, and computed by exact arithmetic on the file's
integers (`dsa_sched/verification/exact_integers.py`). Inputs of integer types are drawn half of them uniformly, half of
them around a drawn mean with a drawn deviation.

A network whose output has the shape of its input rebuilds it, and its decision is a score: the mean square of their
difference. With `--check` nothing is written, and the exit code is 1 where a decision differs that is clear, or a score
by more than 1 %.

Keys of the JSON object: `rows`, one per network:

    network, level, inputs
    same            inputs with the same largest output
    clear           inputs whose margin, between the largest two outputs of exact arithmetic, exceeds the largest error
                    of an output
    clear_same      how many of these have the same largest output
    different       margin and largest error of each input with another largest output
    error           largest error of an output, relative to the range of all outputs
    score           largest relative error of a score; null for networks that decide
    seconds         per input on the simulator
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the two packages that are not installed

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper

import dsa_sched
from benchmarks.output import at_least_one, table
from dsa_sched.io.atomic_write import write_whole
from dsa_sched.quantisation.inputs import SEEDED, calibration_inputs
from dsa_sched.verification.onnx_reference import OnnxReference

Row = dict[str, Any]
Array = npt.NDArray[np.generic]
Floats = npt.NDArray[np.float64]

NETWORK = "resnet50"
INPUTS = 64
SEED = 1
"""Seed of the inputs; the calibration draws with 0."""

NEAR = 0.01
"""Largest relative error of a score."""
RESULTS = Path(__file__).parent / "results"
HEAD = ("network", "level", "inputs", "same decision", "clear", "of these the same", "error", "score off by")


def measured(name: str, path: Path, inputs: int, level: str) -> Row:
    """One row, for a quantised network."""
    model = onnx.load(path)
    artifact, reference = dsa_sched.compile(path, chip="stcp920", level=level), OnnxReference(model)
    (entry,), (output, *_) = model.graph.input, model.graph.output
    scales = _scale_of(model, entry.name), _scale_of(model, output.name)
    ours, exact, scores, seconds = list[Floats](), list[Floats](), list[float](), 0.0
    for number, feed in enumerate(feeds(model, inputs), 1):
        began = time.perf_counter()
        found = artifact.run(feed)[output.name].astype(np.float64).reshape(-1)
        seconds += time.perf_counter() - began
        wanted = reference.values(feed)[output.name].astype(np.float64).reshape(-1)
        given = feed[entry.name].astype(np.float64).reshape(-1)
        if given.shape == wanted.shape:
            scores.append(abs(_score(given, found, *scales) / _score(given, wanted, *scales) - 1))
        ours.append(found)
        exact.append(wanted)
        print(f"{name}: {number} of {inputs}, {seconds:.0f} s", file=sys.stderr, flush=True)
    return {
        "network": name,
        "level": level,
        "inputs": inputs,
        **_decisions(np.array(ours), np.array(exact)),
        "score": max(scores) if scores else None,
        "seconds": seconds / inputs,
    }


def _decisions(ours: Floats, exact: Floats) -> Row:
    """What is said of the largest outputs, each array [input, output]."""
    largest = np.sort(exact, axis=1)
    same, errors = ours.argmax(axis=1) == exact.argmax(axis=1), np.abs(ours - exact).max(axis=1)
    same |= np.take_along_axis(exact, ours.argmax(axis=1)[:, None], axis=1)[:, 0] == largest[:, -1]
    margins = largest[:, -1] - largest[:, -2]
    clear = margins > errors
    return {
        "same": int(same.sum()),
        "clear": int(clear.sum()),
        "clear_same": int((clear & same).sum()),
        "different": [[float(m), float(e)] for m, e in zip(margins[~same], errors[~same], strict=True)],
        "error": float(errors.max() / np.ptp(exact)),
    }


def feeds(model: onnx.ModelProto, count: int) -> Sequence[Mapping[str, Array]]:
    """Inputs that are drawn with SEED."""
    (item,) = model.graph.input
    dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(item.type.tensor_type.elem_type))
    if dtype.kind == "f":
        return list(calibration_inputs(model, SEEDED, count, SEED))
    random, limits = np.random.default_rng(SEED), np.iinfo(dtype)
    shape = [dim.dim_value for dim in item.type.tensor_type.shape.dim]
    drawn: list[Mapping[str, Array]] = []
    for number in range(count):
        values = random.uniform(limits.min - 0.5, limits.max + 0.5, shape)
        if number >= count // 2:
            mean, deviation = random.uniform(limits.min, limits.max), random.uniform(5, 60)
            values = random.normal(mean, deviation, shape)
        drawn.append({item.name: np.clip(np.rint(values), limits.min, limits.max).astype(dtype)})
    return drawn


def _score(given: Floats, rebuilt: Floats, one: tuple[float, float], other: tuple[float, float]) -> float:
    """Mean square of the difference of two values, each on its grid of scale and zero point."""
    apart = (given - one[1]) * one[0] - (rebuilt - other[1]) * other[0]
    return float(np.mean(np.square(apart)))


def _scale_of(model: onnx.ModelProto, name: str) -> tuple[float, float]:
    """Scale and zero point of a value that quantises or is dequantised, through Identity; (1, 0) of numbers."""
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    same = [{node.input[0], node.output[0]} for node in model.graph.node if node.op_type == "Identity"]
    aliases = {name}.union(*(pair for pair in same if name in pair))
    for node in model.graph.node:
        held = node.input[0] if node.op_type == "DequantizeLinear" else node.output[0]
        if node.op_type in ("QuantizeLinear", "DequantizeLinear") and held in aliases:
            zero = stored[node.input[2]] if len(node.input) > 2 else np.zeros(1)
            return float(stored[node.input[1]].reshape(-1)[0]), float(zero.reshape(-1)[0])
    return 1.0, 0.0


def text(rows: Sequence[Row]) -> str:
    """The table."""
    cells = [
        [
            row["network"],
            row["level"],
            str(row["inputs"]),
            str(row["same"]),
            str(row["clear"]),
            str(row["clear_same"]),
            f"{row['error']:.1%}",
            "-" if row["score"] is None else f"{row['score']:.2%}",
        ]
        for row in rows
    ]
    return table(HEAD, cells)


def is_right(row: Row) -> bool:
    """Whether all clear decisions are the same, or all scores near."""
    return bool(row["clear_same"] == row["clear"] if row["score"] is None else row["score"] <= NEAR)


def main(arguments: Sequence[str] | None = None) -> int:
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="quantised networks, in place of ResNet-50")
    parser.add_argument("--inputs", type=at_least_one, default=INPUTS, metavar="N", help="drawn inputs per network")
    parser.add_argument("--level", default="O3", help="level of compilation")
    parser.add_argument("--check", action="store_true", help="exit with 1 where a decision differs; write nothing")
    options = parser.parse_args(arguments)
    rows = [measured(path.stem, path, options.inputs, options.level) for path in options.files]
    if not options.files:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "quantised.onnx"
            dsa_sched.quantize(NETWORK, calibrate=SEEDED).save(path)
            rows = [measured(NETWORK, path, options.inputs, options.level)]
    print(text(rows))
    if options.check:
        return int(not all(map(is_right, rows)))
    if not options.files:
        data = (json.dumps({"rows": rows}, indent=1) + "\n").encode()
        made_by = "Made by `python benchmarks/quantised_decisions.py`."
        page = f"# Decisions of quantised networks\n\n{made_by}\n\n{text(rows)}\n"
        write_whole(RESULTS / "quantised_decisions.json", lambda file: file.write(data))
        write_whole(RESULTS / "quantised_decisions.md", lambda file: file.write(page.encode()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
