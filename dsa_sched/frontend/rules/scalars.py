"""Values of rank 0 get an axis while something is computed on them: tiles have one at least.

    Mul(x [], s []) -> y []    -->    view x [1], view s [1], mul -> [1], view -> y []

The values of the file keep their names and stay without axes; views, which cost nothing, connect them.
"""

from __future__ import annotations

from dataclasses import replace

from dsa_sched.frontend.network.operation import Operation, Writer

AXIS = "axis"
"""Suffix of the names of values with an axis."""


def give_axes(writer: Writer, first: int) -> None:
    """Rewrite the operations from number `first` on, which a rule has just added. Views stay unchanged."""
    added = writer.operations[first:]
    del writer.operations[first:]
    for operation in added:
        if operation.kind == "view" or all(writer.shape(name) for name in operation.outputs):
            writer.operations.append(operation)
        else:
            _add_with_axes(writer, operation)


def _add_with_axes(writer: Writer, operation: Operation) -> None:
    inputs = tuple(_operand(writer, operation, name) for name in operation.inputs)
    flat = [name for name in operation.outputs if not writer.shape(name)]
    outputs = tuple(_axis_value(writer, name) if name in flat else name for name in operation.outputs)
    writer.operations.append(replace(operation, inputs=inputs, outputs=outputs))
    for name in flat:
        view = f"{operation.name}::result" if len(flat) == 1 else f"{operation.name}::result::{name}"
        writer.operations.append(Operation(view, "view", (f"{name}::{AXIS}",), (name,), (), operation.source))


def _operand(writer: Writer, operation: Operation, name: str) -> str:
    """The operand with an axis: a constant is changed, a computed value gets one view for all its readers."""
    wide = f"{name}::{AXIS}"
    if writer.shape(name) or wide in writer.values:
        return name if writer.shape(name) else wide
    if name in writer.constants:
        return writer.store(wide, writer.traced(name).reshape(1))
    _axis_value(writer, name)
    writer.operations.append(Operation(f"{operation.name}::{name}", "view", (name,), (wide,), (), operation.source))
    return wide


def _axis_value(writer: Writer, name: str) -> str:
    wide = f"{name}::{AXIS}"
    writer.values[wide] = replace(writer.values[name], shape=(1,))
    return wide
