"""Static shapes: the user's shapes of inputs, and shape inference that does not carry the weights along.

    model + {"x": (1, 3, 224, 224)} or batch=4  -->  model with fixed input shapes;  --> shape of every value

Rebatching also rewrites Reshape targets that were exported with the batch written into them ([1, 1024]), and refuses
where some value's shape did not follow the batch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import onnx
from onnx import helper, numpy_helper, shape_inference

from dsa_sched.frontend.network.network import Array, Value, array_of, graphs_of
from dsa_sched.frontend.network.other_extents import require_free_extents
from dsa_sched.frontend.network.pool_windows import drop_windows_in_padding
from hw_models.errors import ModelError

LARGEST_EMBEDDED_ELEMENTS = 64
"""Constants up to this size keep their data during inference: shapes, axes, paddings."""


LARGEST_EXTENT = (1 << 63) - 1
"""Largest extent that the file format can express."""


def typed(name: str, array: Array) -> onnx.ValueInfoProto:
    """The declaration of an array as an input."""
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


def shape_text(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) if shape else "scalar"


def initializer_names(model: onnx.ModelProto) -> frozenset[str]:
    return frozenset(tensor.name for tensor in model.graph.initializer)


def skeleton(model: onnx.ModelProto, largest: int = LARGEST_EMBEDDED_ELEMENTS) -> onnx.ModelProto:
    """The model with constants of more than `largest` elements turned into inputs and no declared inner shapes: cheap
    to infer shapes on.

    Extents of inputs that are not positive are left open, as some exporters mean them: inference crashes the process at
    a Slice of such inputs.
    """
    result = onnx.ModelProto()
    result.ir_version = max(model.ir_version, 8)
    result.opset_import.extend(model.opset_import)
    graph = result.graph
    graph.name = model.graph.name or "graph"
    constants = initializer_names(model)
    graph.input.extend(item for item in model.graph.input if item.name not in constants)
    inputs = {item.name: item for item in graph.input}
    for dim in (dim for item in inputs.values() for dim in item.type.tensor_type.shape.dim):
        if dim.HasField("dim_value") and dim.dim_value <= 0:
            dim.ClearField("dim_value")
    held = {}
    for tensor in model.graph.initializer:
        held[tensor.name] = helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        if int(np.prod(tensor.dims, dtype=np.int64)) <= largest:
            graph.initializer.append(tensor)
        else:
            graph.input.append(held[tensor.name])
    graph.node.extend(model.graph.node)
    for item in model.graph.output:
        output = graph.output.add()
        output.name = item.name
        if item.name in inputs:  # inference would take the output's missing shape for the input's
            output.CopyFrom(inputs[item.name])
        elif item.name in held:  # and for the constant's
            output.CopyFrom(held[item.name])
        elif item.type.HasField("tensor_type"):
            output.type.tensor_type.elem_type = item.type.tensor_type.elem_type
    return result


def infer_values(model: onnx.ModelProto) -> dict[str, Value]:
    """Shape and type of every value whose shape inference makes static; the others are absent.

    Raises ModelError with the checker's own message when operators contradict each other.
    """
    # The branch of an If that is not taken may contradict the known shapes; nothing is known of foreign domains.
    open_ = any(node.domain not in ("", "ai.onnx") or any(graphs_of(node)) for node in model.graph.node)
    try:
        values = _inferred(model, strict=not open_)
    except Exception as error:  # onnx raises several unrelated classes here
        who, said = _node_and_reason(first_line(error))
        raise ModelError(who, needs="shapes that agree", has=said) from error
    for node in model.graph.node:
        for shape in (values[name].shape for name in node.output if name in values):
            if min(shape, default=0) < 0:  # inference counts windows that do not fit
                who, needs = f"{node.op_type} {node.name}", "at least one element along each axis of its result"
                raise ModelError(who, needs=needs, has=str(list(shape)), change="give it a larger input")
        value = values.get(node.input[0]) if node.input else None
        if value is not None and node.op_type in ("Transpose", "LayerNormalization", "RMSNormalization"):
            _require_axes(node, len(value.shape))
    return values


def _inferred(model: onnx.ModelProto, *, strict: bool) -> dict[str, Value]:
    """Infer all values. Raises what inference raises. If it counts too many windows, go on from the right number."""
    light = skeleton(model)
    while True:
        try:
            inferred = shape_inference.infer_shapes(light, check_type=strict, strict_mode=strict, data_prop=True)
        except shape_inference.InferenceError:
            # Following numbers, it takes sums of integers [4, 1] and [8] for sums of shapes that do not agree.
            inferred = shape_inference.infer_shapes(light, check_type=strict, strict_mode=strict)
        values = _static_values(inferred, model)
        if not drop_windows_in_padding(light, values):
            return values


def _require_axes(node: onnx.NodeProto, rank: int) -> None:
    """Raises ModelError for axes beyond the rank of a value, which inference lets pass."""
    who = f"{node.op_type} {node.name}"
    for attribute in node.attribute:
        if attribute.name == "perm" and sorted(attribute.ints) != list(range(rank)):
            raise ModelError(who, needs=f"each of {rank} axes once", has=f"perm={list(attribute.ints)}")
        if attribute.name == "axis" and not -rank <= attribute.i < rank:
            raise ModelError(who, needs=f"an axis of a value of {rank}", has=f"axis={attribute.i}")


def _node_and_reason(message: str) -> tuple[str, str]:
    """`... (op_type:Add, node name: a): [ShapeInferenceError] Incompatible dimensions` --> (`Add a`, the last part)."""
    match = re.search(r"\(op_type:(\w+), node name: (.*?)\): *(?:\[\w+\] *)?(.*)", message)
    return (f"{match[1]} {match[2]}", match[3]) if match else ("model", message)


def _static_values(inferred: onnx.ModelProto, model: onnx.ModelProto) -> dict[str, Value]:
    result = {}
    for item in (*inferred.graph.input, *inferred.graph.value_info, *inferred.graph.output):
        dims = item.type.tensor_type.shape.dim
        if item.type.tensor_type.HasField("shape") and all(dim.HasField("dim_value") for dim in dims):
            result[item.name] = Value(tuple(int(dim.dim_value) for dim in dims), item.type.tensor_type.elem_type)
    for tensor in model.graph.initializer:
        result[tensor.name] = Value(tuple(tensor.dims), tensor.data_type)
    return result


def known_values(model: onnx.ModelProto) -> dict[str, Value]:
    """All shapes that can be found, of a model that may be wrong; for messages only."""
    try:
        return _inferred(model, strict=False)
    except Exception:  # a message with fewer shapes is better than none
        return {}


def first_line(error: Exception) -> str:
    """The first meaningful line of a message, shortened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:300]


def fix_shapes(model: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]], batch: int | None) -> dict[str, Value]:
    """Shape of every value. Writes the input shapes into `model`, and replaces the inner and output shapes it declares.

    Raises ModelError for an unknown input name, a rank that differs, a dimension left open, a batch that cannot be set.
    """
    as_fixed = _values_as_fixed(model, shapes)
    before = _size_inputs(model, shapes, batch)
    values = infer_values(model)
    if before is not None:
        _require_same_but_batch(model, before, values)
    if as_fixed is not None:
        require_free_extents(model, as_fixed, values)
    _declare(model, values)
    return values


def _values_as_fixed(model: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Value] | None:
    """The values as the file fixes them, open dimensions as given; None where nothing that is fixed is to change."""
    inputs = {item.name: item for item in model.graph.input}
    declared = {name: declared_dims(inputs[name]) for name in shapes if name in inputs}
    if all(_agrees(dims, shapes[name]) or len(dims) != len(shapes[name]) for name, dims in declared.items()):
        return None
    old = onnx.ModelProto()
    old.CopyFrom(model)
    _size_inputs(
        old,
        {
            name: tuple(d if isinstance(d, int) else s for d, s in zip(dims, shapes[name], strict=True))
            for name, dims in declared.items()
            if len(dims) == len(shapes[name])
        },
        None,
    )
    return infer_values(old)


def _agrees(declared: list[int | str], shape: tuple[int, ...]) -> bool:
    return len(declared) == len(shape) and all(
        d == s or isinstance(d, str) for d, s in zip(declared, shape, strict=True)
    )


def sized_values(model: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]], batch: int | None) -> dict[str, Value]:
    """All shapes that can be found with these inputs, of a model with unknown operators. Sizes the inputs of
    `model`. Raises ModelError as `fix_shapes` does.
    """
    _size_inputs(model, shapes, batch)
    return known_values(model)


def _size_inputs(
    model: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]], batch: int | None
) -> dict[str, Value] | None:
    """Write the shapes of inputs. Returns the values at the old batch where the model had fixed one."""
    constants = initializer_names(model)
    inputs = {item.name: item for item in model.graph.input if item.name not in constants}
    named: dict[int | str, set[int]] = {}
    for name, shape in shapes.items():
        if name not in inputs:
            raise ModelError(
                f"--shape {name}", needs="the name of an input of the model", has=f"inputs {', '.join(inputs)}"
            )
        declared = declared_dims(inputs[name])
        _set_shape(inputs[name], shape)
        for dim, extent in zip(declared, shape, strict=False):
            named.setdefault(dim, set()).add(extent)
    for item in inputs.values():
        _set_named(item, {dim: extents for dim, extents in named.items() if isinstance(dim, str) and dim != "?"})
    before = None
    if batch is not None:
        before = _set_batch(model, list(inputs.values()), batch)
    _require_static(list(inputs.values()))
    return before


def declared_dims(item: onnx.ValueInfoProto) -> list[int | str]:
    return [
        int(dim.dim_value) if dim.HasField("dim_value") and dim.dim_value > 0 else (dim.dim_param or "?")
        for dim in item.type.tensor_type.shape.dim
    ]


def _set_shape(item: onnx.ValueInfoProto, shape: tuple[int, ...]) -> None:
    declared = declared_dims(item)
    has_rank = item.type.tensor_type.HasField("shape")
    if not all(1 <= extent <= LARGEST_EXTENT for extent in shape) or (has_rank and len(declared) != len(shape)):
        raise ModelError(
            f"--shape {item.name}={','.join(map(str, shape))}",
            needs=f"a shape that agrees with the model's [{', '.join(map(str, declared))}]",
            has=f"[{', '.join(map(str, shape))}]",
            change="give one extent of at least 1 per axis",
        )
    del item.type.tensor_type.shape.dim[:]
    for extent in shape:
        item.type.tensor_type.shape.dim.add().dim_value = extent


def _set_named(item: onnx.ValueInfoProto, named: Mapping[str, set[int]]) -> None:
    """Give open dimensions the extent that one of the same name was given, where all such were given one extent."""
    for dim in item.type.tensor_type.shape.dim:
        extents = named.get(dim.dim_param, set())
        if len(extents) == 1:
            dim.dim_value = min(extents)


def _require_static(inputs: list[onnx.ValueInfoProto]) -> None:
    unknown = [item for item in inputs if not item.type.tensor_type.HasField("shape") or any(
        isinstance(dim, str) for dim in declared_dims(item)
    )]  # fmt: skip
    if not unknown:
        return
    said, flags = [], []
    for item in unknown:
        dims = declared_dims(item)
        said.append(f"{item.name} [{', '.join(map(str, dims))}]" if dims else f"{item.name} of unknown rank")
        example = [dim if isinstance(dim, int) else (1 if i == 0 else 224) for i, dim in enumerate(dims)]
        flags.append(f"--shape {item.name}={','.join(map(str, example or [1, 3, 224, 224]))}")
    raise ModelError(
        f"input {', '.join(said)}",
        needs="static dimensions",
        has="dimensions left open by the model",
        change=f"give them, for example {' '.join(flags)}",
    )


def _set_batch(model: onnx.ModelProto, inputs: list[onnx.ValueInfoProto], batch: int) -> dict[str, Value] | None:
    """Replace every input's leading dimension. Returns the values at the old batch when the model had fixed one."""
    if not 1 <= batch <= LARGEST_EXTENT:
        raise ModelError(f"--batch {batch}", needs=f"a batch of 1 to {LARGEST_EXTENT}")
    flat = [item.name for item in inputs if not item.type.tensor_type.shape.dim]
    if flat:
        raise ModelError(
            f"--batch {batch}", needs="a leading dimension of every input", has=f"{', '.join(flat)} without one"
        )
    old = {declared_dims(item)[0] for item in inputs}
    if old == {batch}:
        return None
    if any(isinstance(dim, str) for item in inputs for dim in declared_dims(item)[1:]):
        _require_static([item for item in inputs if any(isinstance(dim, str) for dim in declared_dims(item)[1:])])
    sizes = {dim for dim in old if isinstance(dim, int)}
    before = None
    if len(sizes) == 1 and len(old) == 1:
        before = infer_values(model)
        _rewrite_reshapes(model, before, sizes.pop(), batch)
    elif sizes:
        raise ModelError(
            f"--batch {batch}",
            needs="inputs that agree on their leading dimension",
            has=", ".join(f"{item.name} {declared_dims(item)}" for item in inputs),
            change="give each input's shape with --shape instead",
        )
    for item in inputs:
        item.type.tensor_type.shape.dim[0].Clear()
        item.type.tensor_type.shape.dim[0].dim_value = batch
    return before


def _rewrite_reshapes(model: onnx.ModelProto, values: Mapping[str, Value], old: int, batch: int) -> None:
    """Reshape targets that begin with the old batch get new constants that begin with the new one."""
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
            constants.setdefault(node.output[0], node.attribute[0].t)
    taken = set(constants)
    for node in model.graph.node:
        if node.op_type != "Reshape" or len(node.input) < 2 or node.input[1] not in constants:
            continue
        data, target = values.get(node.input[0]), array_of(constants[node.input[1]])
        plainly_batched = target.ndim == 1 and target.size and target[0] == old and node.input[0] not in constants
        if data is None or not data.shape or data.shape[0] != old or not plainly_batched:
            continue
        name = f"{node.input[1]}::batch{batch}"
        if name not in taken:
            changed = target.copy()
            changed[0] = batch
            model.graph.initializer.append(numpy_helper.from_array(changed, name))
            if model.ir_version < 4:
                model.graph.input.append(helper.make_tensor_value_info(name, onnx.TensorProto.INT64, changed.shape))
            taken.add(name)
        node.input[1] = name


def _require_same_but_batch(model: onnx.ModelProto, before: Mapping[str, Value], after: Mapping[str, Value]) -> None:
    for node in model.graph.node:
        for output in node.output:
            if output not in before:
                continue
            old, new = before[output].shape, after[output].shape if output in after else None
            if new is None or len(new) != len(old) or old[1:] != new[1:]:
                raise ModelError(
                    f"{node.op_type} {node.name}",
                    needs="an output that changes with the batch in its leading dimension only",
                    has=f"{list(old)} before and {list(new) if new else 'an unknown shape'} after --batch",
                    change="export the model with a dynamic batch dimension",
                )


def _declare(model: onnx.ModelProto, values: Mapping[str, Value]) -> None:
    """Write the inferred shapes of outputs into the model and drop the inner ones that may be stale."""
    del model.graph.value_info[:]
    for item in model.graph.output:
        if item.name in values:
            value = values[item.name]
            item.CopyFrom(helper.make_tensor_value_info(item.name, value.dtype, value.shape))
