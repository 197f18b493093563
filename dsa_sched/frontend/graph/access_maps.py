"""Iteration domains and access maps of one operator, read from the TensorIR that TVM makes of it.

    Signature(Conv, pads, shapes)  -->  one-node ONNX model --> Relax --> LegalizeOps --> SBlocks  -->  stages

Every distinct signature is imported once per process; a single node keeps the one-operator granularity and the names
that a whole-model import loses. Stages here have ONNX axes and anonymous tensors: `0`, `1` inputs, `>0` outputs, `%`
inner. tvm is imported only inside functions: the import takes a second.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from dsa_sched.frontend.network.network import Node, Setting, node_proto
from dsa_sched.frontend.network.shapes import first_line, shape_text
from hw_models.errors import ModelError
from partitioner.ir.access import Access, Full, Grouped, Index, Linear
from partitioner.ir.graph import Axis, LoopNest

OPSET = 18
OUTPUT = ">"
INNER = "%"


@dataclass(frozen=True, slots=True)
class Signature:
    """All that decides an operator's access maps. `constants` gives integer inputs by position (axes, starts)."""

    op_type: str
    settings: tuple[tuple[str, Setting], ...]
    input_shapes: tuple[tuple[int, ...], ...]
    output_shapes: tuple[tuple[int, ...], ...]
    constants: tuple[tuple[int, tuple[int, ...]], ...] = ()

    def setting(self, name: str, default: Setting) -> Setting:
        return dict(self.settings).get(name, default)


@lru_cache(maxsize=4096)
def stages_of(signature: Signature) -> tuple[LoopNest, ...]:
    """The stages of one operator, in order. Raises ModelError when a map is neither linear nor of a known kind."""
    stages = []
    for block in _blocks(signature):
        reads = tuple(block.access(signature, name, region) for name, region in block.reads)
        stages.append(LoopNest(block.name, block.axes, block.access(signature, *block.writes), reads))
    return _without_copies(signature, tuple(stages))


@dataclass(frozen=True, slots=True)
class _Block:
    """One SBlock: `reads` and `writes` are buffer names with, for each axis, coefficients (constant last) or None."""

    name: str
    axes: tuple[Axis, ...]
    writes: tuple[str, tuple[_Region, ...]]
    reads: tuple[tuple[str, tuple[_Region, ...]], ...]

    def access(self, signature: Signature, name: str, regions: tuple[_Region, ...]) -> Access:
        return Access(name, tuple(self._index(signature, region) for region in regions))

    def _index(self, signature: Signature, region: _Region) -> Index:
        if region.coefficients:
            terms = zip(self.axes, region.coefficients[:-1], strict=True)
            used = tuple((axis.name, c) for axis, c in terms if c)
            return Full() if region.extent > 1 else Linear(used, region.coefficients[-1])
        groups = signature.setting("group", 1)
        if signature.op_type == "Conv" and isinstance(groups, int) and groups > 1:
            outputs, per_group = signature.input_shapes[1][:2]
            return Grouped("ff", outputs // groups, per_group, "rc")
        raise ModelError(
            f"{signature.op_type} {list(signature.input_shapes)}", needs="linear access maps", has=region.text
        )


@dataclass(frozen=True, slots=True)
class _Region:
    coefficients: tuple[int, ...]
    extent: int
    text: str


def _blocks(signature: Signature) -> Iterator[_Block]:
    """The SBlocks of all functions that the node becomes, with buffers named by their role in the operator."""
    from tvm import relax

    module = _legalized(signature)
    main = module["main"]
    names = {parameter: str(position) for position, parameter in enumerate(main.params)}
    if len(main.params) != len(signature.input_shapes) - len(signature.constants):
        raise ModelError(signature.op_type, needs="one parameter for each computed input", has=str(len(main.params)))
    bindings = [binding for block in main.body.blocks for binding in block.bindings]
    results = _results(main, bindings)
    for position, binding in enumerate(bindings):
        call = binding.value
        if not isinstance(call, relax.Call):
            continue
        function = module[call.args[0]]
        arguments = [names[argument] for argument in call.args[1].fields]
        written = len(function.params) - len(arguments)
        outputs = [f"{INNER}{position}.{i}" for i in range(written)]
        if binding.var in results:
            outputs = [f"{OUTPUT}{i}" for i in range(written)] if written > 1 else [f"{OUTPUT}{results[binding.var]}"]
        else:
            names[binding.var] = outputs[0]
        buffers = dict(zip((parameter.name for parameter in function.params), (*arguments, *outputs), strict=True))
        yield from _function_blocks(function, buffers, f"{INNER}{position}.")


def _results(main: Any, bindings: Sequence[Any]) -> dict[Any, int]:
    """Variable -> position of the output that it is; follows the bindings that only rename or make tuples."""
    from tvm import relax

    by_var = {binding.var: binding.value for binding in bindings}
    frontier: list[tuple[Any, int]] = [(main.body.body, 0)]
    found: dict[Any, int] = {}
    while frontier:
        expression, position = frontier.pop()
        if isinstance(expression, relax.Tuple):
            frontier += [(field, i) for i, field in enumerate(expression.fields)]
        elif isinstance(expression, relax.TupleGetItem):
            frontier.append((expression.tuple_value, position))
        elif isinstance(by_var.get(expression), relax.Call):
            found.setdefault(expression, position)
        elif expression in by_var:
            frontier.append((by_var[expression], position))
    return found


def _legalized(signature: Signature) -> Any:
    """The one-node model as a Relax module whose operators are TensorIR functions."""
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx

    inputs = [f"i{position}" for position in range(len(signature.input_shapes))]
    outputs = [f"o{position}" for position in range(len(signature.output_shapes))]
    constants = dict(signature.constants)
    graph = helper.make_graph(
        [node_proto(Node("node", signature.op_type, tuple(inputs), tuple(outputs), signature.settings))],
        "operator",
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for position, (name, shape) in enumerate(zip(inputs, signature.input_shapes, strict=True))
            if position not in constants
        ],
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in zip(outputs, signature.output_shapes, strict=True)
        ],
        [numpy_helper.from_array(np.array(values, np.int64), inputs[at]) for at, values in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the importer repeats the checker's remarks, which we have judged already
        try:
            return relax.transform.LegalizeOps()(from_onnx(model))
        except Exception as error:  # the importer raises whatever its converters raise
            shapes = ", ".join(map(shape_text, signature.input_shapes))
            raise ModelError(
                f"{signature.op_type} ({shapes})", needs="an operator that TVM can lower", has=first_line(error)
            ) from error


def _function_blocks(function: Any, buffers: dict[str, str], prefix: str) -> Iterator[_Block]:
    import tvm_ffi
    from tvm import sym
    from tvm.s_tir import SBlock

    found: list[Any] = []

    def visit(node: Any) -> None:
        if isinstance(node, SBlock) and node.name_hint != "root":
            found.append(node)

    tvm_ffi.structural_walk(function.body, visit)
    for block in found:
        variables = [iteration.var for iteration in block.iter_vars]
        axes = tuple(
            Axis(iteration.var.name.removeprefix("v_"), int(iteration.dom.extent), int(iteration.iter_type) == 2)
            for iteration in block.iter_vars
        )

        def regions(access: Any, variables: list[Any] = variables) -> tuple[str, tuple[_Region, ...]]:
            result = []
            for span in access.region:
                coefficients = tuple(int(c) for c in sym.detect_linear_equation(span.min, variables))
                result.append(_Region(coefficients, int(span.extent), "" if coefficients else "a non-linear index"))
            return buffers.get(access.source.name, prefix + access.source.name), tuple(result)

        yield _Block(block.name_hint, axes, regions(block.writes[0]), tuple(regions(read) for read in block.reads))


def _without_copies(signature: Signature, stages: tuple[LoopNest, ...]) -> tuple[LoopNest, ...]:
    """Drop inner stages that copy a whole tensor unchanged (a padding of zero); their readers read the source."""
    shapes = {str(position): shape for position, shape in enumerate(signature.input_shapes)}
    kept: list[LoopNest] = []
    alias: dict[str, str] = {}
    for stage in stages:
        reads = [read for read in stage.reads if isinstance(read, Access)]
        reads = [replace(read, tensor=alias.get(read.tensor, read.tensor)) for read in reads]
        target, shape = stage.writes.tensor, tuple(axis.extent for axis in stage.domain)
        identity = tuple(Linear(((axis.name, 1),)) for axis in stage.domain)
        inner = target.startswith(INNER) and len(reads) == 1 and shapes.get(reads[0].tensor) == shape
        if inner and stage.name.startswith("pad") and reads[0].indices == stage.writes.indices == identity:
            alias[target] = reads[0].tensor
        else:
            shapes[target] = shape
            kept.append(replace(stage, reads=tuple(reads)))
    return tuple(kept)
