"""Models of operators side by side, compiled for a GPU and executed: each reads inputs or constants and is an output.

    Branches().input("x", ...).node("Slice", ...)  --compile_model, O0--> kernels --executor--> outputs
                                                   --onnxruntime, fp32--> what they are to be

Inputs and weights are halves, so that both sides read the same numbers. `magnitudes` are what the model gives for
absolute values: how large the terms of each sum are, of which errors of fp32 are parts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from codegen.cutlass.emission.launch_list import read_launch_list
from codegen.judgement import rounded_sum_error
from dsa_sched.pipeline.driver import compile_model
from dsa_sched.stages.compilation import Compilation, CompileOptions
from partitioner.planners.levels import O0
from tests.dsa_sched.frontend.numpy_graph import reference_values

__all__ = ["Branches", "Executed", "executed", "saved"]

Array = npt.NDArray[np.generic]
Doubles = npt.NDArray[np.float64]


@dataclass(slots=True)
class Branches:
    """A model that grows; equal seeds give equal numbers."""

    seed: int = 0
    inputs: dict[str, Array] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)

    def halves(self, *shape: int) -> Array:
        """Normal numbers, as float32 that halves hold exactly."""
        self.seed += 1
        drawn = np.random.default_rng(self.seed).normal(0, 1, shape)
        return drawn.astype(np.float16).astype(np.float32)

    def input(self, *shape: int, content: Array | None = None) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs[name] = self.halves(*shape) if content is None else content.astype(np.float32)
        return name

    def constant(self, content: Array) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = content
        return name

    def number(self, value: float) -> str:
        return self.constant(np.array(value, np.float32))

    def integers(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def node(self, op_type: str, *operands: str, out: bool = True, **attributes: Any) -> str:
        """One operator; `out` makes its result an output of the model."""
        name = f"{op_type.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, operands, [name], name=f"node_{name}", **attributes))
        if out:
            self.outputs.append(name)
        return name

    def model(self, opset: int = 17, absolute: bool = False) -> onnx.ModelProto:
        constants = (
            numpy_helper.from_array(np.abs(array) if absolute and array.dtype == np.float32 else array, name)
            for name, array in self.constants.items()
        )
        graph = helper.make_graph(
            self.nodes,
            "branches",
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, a.shape) for n, a in self.inputs.items()],
            [helper.make_empty_tensor_value_info(name) for name in self.outputs],
            list(constants),
        )
        for output in graph.output:
            output.type.tensor_type.elem_type = TensorProto.FLOAT
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
        return onnx.shape_inference.infer_shapes(made)


@dataclass(frozen=True, slots=True)
class Executed:
    """What the kernels left, and what they were to leave, by output."""

    compiled: Compilation
    found: dict[str, Array]
    wanted: dict[str, Array]
    magnitudes: dict[str, Array]

    def moved(self, name: str) -> bool:
        """Whether every element is the one of the reference, rounded to half; NaN stays NaN."""
        with np.errstate(over="ignore"):
            wanted = self.wanted[name].astype(np.float16)
        found = self.found[name].astype(np.float16)
        return found.shape == wanted.shape and np.array_equal(found, wanted, equal_nan=True)

    def beyond(self, name: str, terms: int) -> float:
        """The largest error over what sums of so many terms may be off, onnxruntime's own fp32 included; at most 1."""
        found, wanted = (side[name].astype(np.float64) for side in (self.found, self.wanted))
        assert found.shape == wanted.shape, name
        assert np.isfinite(found).all(), name
        magnitudes = self.magnitudes[name].astype(np.float64)
        allowed = rounded_sum_error(wanted, magnitudes, 2 * terms, stored="float16", summed="float32")
        return float(np.max(np.abs(found - wanted) / allowed))

    def kernels(self, output: str) -> set[str]:
        """Templates that the plan has chosen for the layer that makes an output."""
        graph = self.compiled.model.graph
        groups = (group for group in self.compiled.plan.groups for layer in group.layers if layer.output == output)
        assert output in graph.by_name
        return {group.kernel.split("(")[0] for group in groups}

    def launches(self, output: str) -> int:
        """Kernels that are started for the layer that makes an output."""
        files = self.compiled.artifact.clusters[0]
        listed = read_launch_list(files.files[files.executable])
        groups = {g.name for g in self.compiled.plan.groups for layer in g.layers if layer.output == output}
        return sum(1 for entry in listed.launches if entry.layer in groups)


def saved(branches: Branches, folder: Path, opset: int = 17) -> Path:
    """The model as a file."""
    path = folder / "branches.onnx"
    path.write_bytes(branches.model(opset).SerializeToString())
    return path


def executed(branches: Branches, folder: Path, chip: str = "a100", opset: int = 17) -> Executed:
    """The model compiled at O0 and run once."""
    compiled = compile_model(saved(branches, folder, opset), chip, CompileOptions(O0()))
    found = compiled.artifact.run(branches.inputs)
    absolute = {name: np.abs(array) for name, array in branches.inputs.items()}
    return Executed(
        compiled,
        found,
        reference_values(branches.model(opset), branches.inputs),
        reference_values(branches.model(opset, absolute=True), absolute),
    )
