"""Layouts: views between them move nothing, and every value has exactly one."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsa_sched.frontend.graph.layout import assign_layouts, channels_last, keeps_order, row_major, view_axes
from dsa_sched.frontend.network.network import Value
from dsa_sched.frontend.network.operation import Operation
from partitioner.ir.wants import AxisOrder

FLOAT = 1


@pytest.mark.parametrize(
    ("shape", "axes", "target", "wanted"),
    [
        ((2, 4, 6, 5), (0, 2, 3, 1), (2, 2, 2, 6, 5), (0, 3, 4, 1, 2)),  # split channels
        ((2, 2, 2, 6, 5), (0, 3, 4, 1, 2), (2, 4, 6, 5), (0, 2, 3, 1)),  # and join them
        ((2, 4, 6, 5), (0, 2, 3, 1), (2, 4, 30), (0, 2, 1)),  # pixels as tokens
        ((2, 8, 1, 1), (0, 2, 3, 1), (2, 8), (0, 1)),
        ((1, 8, 1, 1), (0, 2, 3, 1), (1, 8), (0, 1)),
        ((2, 3, 4), (0, 1, 2), (6, 4), (0, 1)),
    ],
)
def test_views_carry_the_layout_over(
    shape: tuple[int, ...], axes: tuple[int, ...], target: tuple[int, ...], wanted: tuple[int, ...]
) -> None:
    assert view_axes(shape, axes, target) == wanted
    assert keeps_order(shape, axes, target, wanted)


def test_a_flattened_map_has_no_layout_of_its_own() -> None:
    axes = view_axes((2, 4, 6, 5), channels_last(4), (2, 120))
    assert axes == (0, 1)
    assert not keeps_order((2, 4, 6, 5), channels_last(4), (2, 120), (0, 1))


@given(st.data())
def test_keeping_order_means_that_a_reshape_of_the_bytes_is_the_reshape_of_the_value(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    axes = tuple(data.draw(st.permutations(range(len(shape)))))
    target = data.draw(st.sampled_from([(prod(shape),), shape, (1, *shape), (*shape, 1), (shape[0], prod(shape[1:]))]))
    target_axes = view_axes(shape, axes, target)
    if target_axes is None:
        return
    value = np.arange(prod(shape)).reshape(shape)
    stored = value.transpose(axes)
    viewed = stored.reshape([target[axis] for axis in target_axes])
    same = np.array_equal(viewed, value.reshape(target).transpose(target_axes))
    assert keeps_order(shape, axes, target, target_axes) == same


def layouts(
    operations: list[Operation], shapes: Mapping[str, tuple[int, ...]], order: AxisOrder = "channels_last"
) -> dict[str, tuple[int, ...]]:
    values = {name: Value(shape, FLOAT) for name, shape in shapes.items()}
    return assign_layouts(operations, ("x",), values, frozenset(["w"]), order)


def op(kind: str, inputs: str, output: str) -> Operation:
    return Operation(output, kind, tuple(inputs), (output,))


def test_element_wise_operators_follow_a_convolution_on_either_side() -> None:
    operations = [op("relu", "x", "a"), op("conv", "aw", "b"), op("concat", "bx", "c"), op("softmax", "c", "d")]
    shapes = dict.fromkeys("xabcd", (1, 2, 3, 3)) | {"w": (2, 2, 1, 1)}
    assert layouts(operations, shapes) == dict.fromkeys("xabcd", (0, 2, 3, 1))


def test_without_a_convolution_nothing_is_turned() -> None:
    operations = [op("relu", "x", "a"), op("transpose", "a", "b")]
    shapes = {"x": (1, 2, 3, 3), "a": (1, 2, 3, 3), "b": (1, 3, 3, 2)}
    assert set(layouts(operations, shapes).values()) == {row_major(4)}


def test_an_operand_of_lower_rank_has_its_own_layout() -> None:
    shapes = {"x": (1, 2, 3, 3), "a": (1, 2, 3, 3), "b": (3, 3), "w": (2, 2, 1, 1), "c": (1, 2, 3, 3)}
    found = layouts([op("conv", "xw", "a"), op("add", "ab", "c")], shapes)
    assert found == {"x": (0, 2, 3, 1), "a": (0, 2, 3, 1), "c": (0, 2, 3, 1), "b": (0, 1)}
