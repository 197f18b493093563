"""Quantised networks on Gemmini: `python benchmarks/gemmini.py [--networks NAME...] [--check]`.

Quantises networks of the zoo on a drawn input with one scale for the weights of each layer, compiles them at level O0,
after which every layer leaves its result in the main memory, and at O3, where values stay in the scratchpad, verifies
O3 (bit for bit against the emulation and against O0, within bounds against the file), and prints bytes of the main
memory next to those of the published library's loops, cycles by the cycle model and the bound below which no order of
the instructions is. The bytes of the core are counted as if each of its values were moved once. With `--check` the exit
code is 1 where a network fails, moves more by the controllers than the published loops do (`LARGEST_EXCESS`), or has a
larger share of their bytes than `LARGEST_SHARES` says, and nothing is written; otherwise table and JSON go to
benchmarks/results/, where `--networks` replaces rows and leaves the others.

Keys of a row of the JSON file:

    network, level, refused           operators that are refused; then nothing else is known
    verified, layers                  whether all layers and outputs hold, and how many layers
    groups                            of layers between which all values stay in the scratchpad
    read_bytes, written_bytes         by the controllers
    core_bytes                        read and written by the core
    published_bytes                   of the published loops, with int8 after every other layer, as if those with groups
                                      read and wrote each value once and no weights
    cycles, bound_cycles, core_cycles, array_cycles
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from math import inf, prod
from multiprocessing import get_context
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the two packages that are not installed

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import dsa_sched
from benchmarks.lab.gemmini_loops import published_bytes
from benchmarks.output import table
from codegen.gemmini.isa.geometry import MAIN, geometry_of
from codegen.gemmini.kernels.layers import is_product
from codegen.gemmini.kernels.product_shape import product_shape
from codegen.gemmini.streams.instructions import IDENTITY_LOAD
from codegen.gemmini.target import TARGET
from dsa_sched.io.atomic_write import write_whole
from dsa_sched.pipeline.driver import compile_clusters
from dsa_sched.stages.compilation import Compilation, CompileOptions, Lowered
from dsa_sched.verification.verify import VerifyOptions, verify_model
from hw_models.errors import ModelError
from isched.bounds.lower_bounds import program_bounds
from isched.timing.cycle_model import time_program
from partitioner.ir.regions import full_box
from partitioner.planners.levels import O0, O3

Row = dict[str, Any]
CHIP = "gemmini"
KEYWORDS = "keywords"
"""A network that tells spoken words apart: a convolution and four separable ones over 49 by 10 features."""

NETWORKS = ("resnet50", "mobilenet_v2", "squeezenet", KEYWORDS, "bert_base-mini", "vit_b16-mini", "gpt2-mini")
LARGEST_SHARES = {"resnet50": 0.5}
"""Share of the published loops' bytes that the controllers and the core may move together at level O3."""

LARGEST_EXCESS = 1.02
"""Bytes of the controllers as a share of those of the published loops, at most: sums with which the core goes on in
floating point leave as int32, where the published loops' results are counted as int8."""

LEVELS = (O0(), O3())
AT_ONCE = 2
"""Networks that are measured at once, each in a process of its own: one needs up to two GiB."""

SAMPLES = 256
RESULTS = Path(__file__).resolve().parent / "results"
JSON = RESULTS / "gemmini.json"


def keyword_network() -> onnx.ModelProto:
    """The network in floating point, with drawn weights."""
    random = np.random.default_rng(1)
    constants: dict[str, Any] = {}
    nodes: list[onnx.NodeProto] = []

    def layer(kind: str, x: str, shape: tuple[int, ...], **attributes: Any) -> str:
        name = f"{kind.lower()}{len(nodes)}"
        spread = np.sqrt(2.0 / np.prod(shape[1:] if kind == "Conv" else shape[:1]))
        constants[f"{name}.w"] = random.normal(0, spread, shape).astype(np.float32)
        constants[f"{name}.b"] = random.normal(0, 0.1, shape[0] if kind == "Conv" else shape[1]).astype(np.float32)
        nodes.append(helper.make_node(kind, [x, f"{name}.w", f"{name}.b"], [name], name=name, **attributes))
        return name

    def after(kind: str, x: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(kind, [x], [f"{x}.{kind.lower()}"], name=f"{x}.{kind.lower()}", **attributes))
        return f"{x}.{kind.lower()}"

    x = after("Relu", layer("Conv", "x", (64, 1, 10, 4), strides=[2, 2], pads=[4, 1, 5, 1]))
    for _ in range(4):
        x = after("Relu", layer("Conv", x, (64, 1, 3, 3), pads=[1] * 4, group=64))
        x = after("Relu", layer("Conv", x, (64, 64, 1, 1)))
    x = after("Flatten", after("GlobalAveragePool", x))
    y = after("Softmax", layer("Gemm", x, (64, 12)), axis=1)
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in (("x", (1, 1, 49, 10)), (y, (1, 12)))]  # fmt: skip
    stored = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, KEYWORDS, ends[:1], ends[1:], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def measured(network: str, folder: Path) -> list[Row]:
    """A row for each level, or one for a network that is refused."""
    source = keyword_network() if network == KEYWORDS else network
    path = folder / f"{network}.onnx"
    dsa_sched.quantize(source, calibrate="seeded", inputs=1, per_layer=True).save(path)
    try:
        parts = [compile_clusters(path, CHIP, CompileOptions(level))[0] for level in LEVELS]
    except ModelError as error:
        return [{"network": network, "level": "", "refused": len(str(error).splitlines()) - 2}]
    report = verify_model(path, CHIP, CompileOptions(LEVELS[-1]), VerifyOptions(samples=SAMPLES))
    checked = {"verified": not report.failures, "layers": len(report.layers)}
    return [{"network": network, "level": part.plan.level, **checked, **figures(part)} for part in parts]


def figures(part: Compilation) -> Row:
    """Bytes and cycles of one program."""
    assert isinstance(part.made, Lowered)
    program, chip, graph = part.made.program, part.chip, part.model.graph
    moved = {"read": 0, "written": 0, "core": 0}
    for instr in program.streams[0].instrs:
        for way, regions in (("read", instr.reads), ("written", instr.writes)):
            size = sum(region.size_bytes for region in regions if region.memory == MAIN)
            moved["core" if instr.engine == "core" else way] += size
        if instr.opcode == IDENTITY_LOAD:
            moved["read"] += geometry_of(chip).dim ** 2
    timeline = time_program(program, chip, TARGET)
    published = 0
    for layer in (layer for group in part.plan.groups for layer in group.layers):
        anchor, result = layer.anchor(graph), graph.by_name[layer.output]
        box = full_box(graph.by_name[anchor.outputs[0]].shape)
        shape = product_shape(graph, anchor, box) if is_product(graph, layer) else None
        if shape is not None and shape.all_groups == 1:
            published += published_bytes(shape, geometry_of(chip))
        elif not anchor.is_view:
            values = [graph.by_name[name] for name in layer.inputs(graph) if not graph.by_name[name].constant]
            published += sum(prod(tensor.shape) for tensor in (*values, result))
    return {
        "groups": len(part.plan.groups),
        **{f"{way}_bytes": size for way, size in moved.items()},
        "published_bytes": published,
        "cycles": timeline.cycles,
        "bound_cycles": program_bounds(program, chip, TARGET).cycles,
        "core_cycles": timeline.busy_cycles.get("core", 0.0),
        "array_cycles": timeline.busy_cycles.get("array", 0.0),
    }


def failed(rows: Sequence[Row]) -> list[str]:
    """What must not be, in words."""
    found = [f"{row['network']} does not hold" for row in rows if not row.get("verified", True)]
    for row in rows:
        name = f"{row['network']} at {row['level']}"
        if "refused" in row:
            continue
        if row["read_bytes"] + row["written_bytes"] > LARGEST_EXCESS * row["published_bytes"]:
            found.append(f"{name}: the controllers move more than the published loops")
        if row["level"] == LEVELS[-1].name and _share(row) > LARGEST_SHARES.get(row["network"], inf):
            found.append(f"{name}: {_share(row):.1%} of the bytes of the published loops")
    return found


def _share(row: Row) -> float:
    """Share of the published loops' bytes that controllers and core move."""
    return float((row["read_bytes"] + row["written_bytes"] + row["core_bytes"]) / row["published_bytes"])


def text(rows: Sequence[Row]) -> str:
    """The table."""
    headings = ("network", "level", "holds", "groups", "controllers MiB", "core MiB", "published loops MiB", "share",
                "cycles", "bound", "core", "array")  # fmt: skip
    lines = []
    for row in rows:
        if "refused" in row:
            lines.append((row["network"], "-", f"no: {row['refused']} operators are refused", *["-"] * 9))
            continue
        controllers = row["read_bytes"] + row["written_bytes"]
        sizes = [f"{size / 2**20:.2f}" for size in (controllers, row["core_bytes"], row["published_bytes"])]
        shares = [f"{row[f'{unit}_cycles'] / row['cycles']:.1%}" for unit in ("core", "array")]
        holds = f"{row['layers']} layers" if row["verified"] else "no"
        cycles = [f"{row[name]:,.0f}" for name in ("cycles", "bound_cycles")]
        share = f"{_share(row):.0%}"
        lines.append((row["network"], row["level"], holds, str(row["groups"]), *sizes, share, *cycles, *shares))
    return table(headings, lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, help="only these rows")
    parser.add_argument("--check", action="store_true", help="exit with 1 where a network fails; write nothing")
    options = parser.parse_args(arguments)
    began, rows = time.perf_counter(), list[Row]()
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(AT_ONCE, mp_context=get_context("spawn")) as pool,
    ):
        networks = options.networks or NETWORKS
        jobs = [pool.submit(measured, network, Path(folder)) for network in networks]
        for network, job in zip(networks, jobs, strict=True):
            rows += job.result()
            print(f"{network}: {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    if options.check:
        print("\n".join((text(rows), *failed(rows))))
        return int(bool(failed(rows)))
    kept = json.loads(JSON.read_text(encoding="utf-8"))["rows"] if options.networks and JSON.exists() else []
    new = {row["network"] for row in rows}
    both = [*rows, *(row for row in kept if row["network"] not in new)]
    rows = [row for network in NETWORKS for row in both if row["network"] == network]
    data = (json.dumps({"rows": rows}, indent=1) + "\n").encode()
    write_whole(JSON, lambda file: file.write(data))
    made_by = "Made by `python benchmarks/gemmini.py`; see its first lines for what is counted."
    page = f"# Gemmini\n\n{made_by}\n\n{text(rows)}\n"
    write_whole(RESULTS / "gemmini.md", lambda file: file.write(page.encode()))
    print(text(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
