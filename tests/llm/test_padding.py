"""Which operators rows of padding change: what is accepted is right in onnxruntime, what is not is refused by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from dsa_sched.frontend import open_model
from dsa_sched.frontend.load import sized_source
from dsa_sched.sizes.combinations import checked_sizes
from dsa_sched.sizes.entries import PaddingEntry
from dsa_sched.sizes.padded_run import cut, padded
from dsa_sched.sizes.padding import ChangedByPadding, padding_of
from dsa_sched.stages.compile_options import CompileOptions
from dsa_sched.zoo import seeded_inputs

Array = npt.NDArray[Any]
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


@dataclass
class File:
    """A file that is being written. Inputs are named when they are first used."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    stored: list[onnx.TensorProto] = field(default_factory=list)
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    outputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    feeds: dict[str, Callable[[int, np.random.Generator], Array]] = field(default_factory=dict)

    def input(
        self, name: str, shape: tuple[int | str, ...], dtype: int = FLOAT,
        feed: Callable[[int, np.random.Generator], Array] | None = None,
    ) -> str:  # fmt: skip
        self.inputs.append(helper.make_tensor_value_info(name, dtype, shape))

        def draw(rows: int, random: np.random.Generator) -> Array:
            return random.normal(size=[rows if dim == "s" else int(dim) for dim in shape]).astype(np.float32)

        self.feeds[name] = feed or draw
        return name

    def op(self, op_type: str, *operands: str | Array | np.generic, name: str = "", **attributes: Any) -> str:
        name = name or f"{op_type}_{len(self.nodes)}"
        named = [operand if isinstance(operand, str) else self.constant(operand) for operand in operands]
        self.nodes.append(helper.make_node(op_type, named, [f"{name}_out"], name=name, **attributes))
        return f"{name}_out"

    def constant(self, array: Array | np.generic) -> str:
        name = f"constant_{len(self.stored)}"
        self.stored.append(numpy_helper.from_array(np.array(array, order="C"), name))
        return name

    def output(self, name: str, dtype: int = FLOAT) -> None:
        self.outputs.append(helper.make_tensor_value_info(name, dtype, None))

    @property
    def model(self) -> onnx.ModelProto:
        graph = helper.make_graph(self.nodes, "file", self.inputs, self.outputs, self.stored)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11)


def weights(*shape: int) -> Array:
    return np.random.default_rng([*shape]).normal(size=shape).astype(np.float32)


def integers(*numbers: int) -> Array:
    return np.array(numbers, np.int64)


def rows_of(f: File, x: str, axis: int = 1) -> str:
    """The number of rows, as a scalar."""
    return f.op("Squeeze", f.op("Shape", x, start=axis, end=axis + 1), integers(0))


def numbers(f: File, x: str, axis: int = 1) -> str:
    """0, 1, 2, ... for each row."""
    return f.op("Range", np.array(0), rows_of(f, x, axis), np.array(1))


# What is accepted.


def own_rows(f: File) -> None:
    x = f.input("x", (1, "s", 8))
    y = f.op("LayerNormalization", f.op("Relu", f.op("MatMul", x, weights(8, 8))), weights(8))
    f.output(f.op("Softmax", y))


def flattened(f: File) -> None:
    """[2, rows, 8] -> [2 * rows, 8] -> Gemm -> back, as linear layers are often written."""
    x = f.input("x", (2, "s", 8))
    y = f.op("Gemm", f.op("Reshape", x, integers(-1, 8)), weights(8, 6), weights(6))
    shape = f.op("Concat", integers(2), f.op("Shape", x, start=1, end=2), integers(6), axis=0)
    f.output(f.op("Reshape", y, shape))


def attended(f: File, q: str, k: str, mask: str) -> str:
    scores = f.op("MatMul", q, f.op("Transpose", k, perm=(0, 2, 1)))
    return f.op("MatMul", f.op("Softmax", f.op("Add", scores, mask), name="attention"), k)


def masked_by_an_input(f: File) -> None:
    """A mask of the file's own, ones for tokens, as exporters of encoders have it."""
    x = f.input("x", (1, "s", 8))
    mask = f.input("mask", (1, "s"), INT64, lambda rows, _: np.ones((1, rows), np.int64))
    apart = f.op("Unsqueeze", f.op("Cast", mask, to=FLOAT), integers(1))
    added = f.op("Mul", f.op("Sub", np.float32(1), apart), np.float32(-10000))
    f.output(attended(f, f.op("MatMul", x, weights(8, 8)), x, added))


def averaged_under_a_mask(f: File) -> None:
    x = f.input("x", (1, "s", 8))
    mask = f.input("mask", (1, "s", 1), FLOAT, lambda rows, _: np.ones((1, rows, 1), np.float32))
    total = f.op("ReduceSum", f.op("Mul", x, mask), integers(1), keepdims=0)
    f.output(f.op("Div", total, f.op("ReduceSum", mask, integers(1), keepdims=0)))


def causal_by_a_triangle(f: File) -> None:
    x = f.input("x", (1, "s", 8))
    place = numbers(f, x)
    later = f.op("Greater", f.op("Unsqueeze", place, integers(0)), f.op("Unsqueeze", place, integers(1)))
    f.output(attended(f, x, x, f.op("Where", later, np.float32(-np.inf), np.float32(0))))


def causal_by_trilu(f: File) -> None:
    x = f.input("x", (1, "s", 8))
    shape = f.op("Concat", *[f.op("Shape", x, start=1, end=2)] * 2, axis=0)
    ones = f.op("Trilu", f.op("Expand", np.float32(1), shape), upper=0)
    hidden = f.op("Where", f.op("Equal", ones, np.float32(0)), np.float32(-1e9), np.float32(0))
    f.output(attended(f, x, x, hidden))


def after_a_past(f: File) -> None:
    """Keys of the past, then new ones, and a mask that a comparison of places makes."""
    x, past = f.input("x", (1, "s", 8)), f.input("past", (1, 5, 8))
    keys = f.op("Concat", past, x, axis=1)
    rows, columns = f.op("Add", numbers(f, x), np.array(5)), numbers(f, keys)
    seen = f.op("LessOrEqual", f.op("Unsqueeze", columns, integers(0)), f.op("Unsqueeze", rows, integers(1)))
    f.output(attended(f, x, keys, f.op("Where", seen, np.float32(0), np.float32(-np.inf))))
    f.output(keys)


def static_cache(f: File) -> None:
    """A cache with room, written by ScatterND at computed places, and a mask by places, as PyTorch exports it."""
    x, cache = f.input("x", (1, "s", 8)), f.input("cache", (16, 8))
    begin = f.input("begin", (1,), INT64, lambda _rows, _: integers(4))
    places = f.op("Add", numbers(f, x), begin)
    written = f.op("ScatterND", cache, f.op("Unsqueeze", places, integers(1)), f.op("Squeeze", x, integers(0)))
    seen = f.op("LessOrEqual", np.arange(16)[None], f.op("Unsqueeze", places, integers(1)))
    mask = f.op("Where", seen, np.float32(0), np.float32(-np.inf))
    f.output(attended(f, x, f.op("Unsqueeze", written, integers(0)), mask))
    f.output(written)


def lengths_with_the_new_rows(f: File) -> None:
    """The length counts the new rows: rows of padding are counted, too."""
    x, cache = f.input("x", (1, 1, "s", 8)), f.input("cache", (1, 1, 16, 8))
    length = f.input("length", (1,), INT64, lambda rows, _: integers(3 + rows))
    begin = f.op("Sub", length, rows_of(f, x, 2))
    written = f.op("TensorScatter", cache, x, begin, axis=-2)
    f.output(f.op("Attention", x, written, written, "", "", "", length, is_causal=1))
    f.output(written)


def lengths_and_places_apart(f: File) -> None:
    x, cache = f.input("x", (2, 1, "s", 8)), f.input("cache", (2, 1, 16, 8))
    length = f.input("length", (2,), INT64, lambda rows, _: integers(3 + rows, 5 + rows))
    begin = f.input("begin", (2,), INT64, lambda _rows, _: integers(3, 5))
    written = f.op("TensorScatter", cache, x, begin, axis=-2)
    f.output(f.op("Attention", x, written, written, "", "", "", length, is_causal=1))


def summed_forward(f: File) -> None:
    f.output(f.op("CumSum", f.input("x", (1, "s", 4)), np.array(1)))


def convolved_with_the_past(f: File) -> None:
    x = f.input("x", (1, 4, "s"))
    f.output(f.op("Relu", f.op("Conv", x, weights(4, 4, 3), pads=(2, 0))))


def shifted_by_a_row(f: File) -> None:
    x = f.input("x", (1, "s", 4))
    before = f.op("Concat", np.zeros((1, 1, 4), np.float32), f.op("Slice", x, integers(0), integers(-1), integers(1)),
                  axis=1)  # fmt: skip
    f.output(f.op("Sub", x, before))


def first_row(f: File) -> None:
    f.output(f.op("Gather", f.op("Relu", f.input("x", (1, "s", 4))), np.array(0), axis=1))


def forward_in_time(f: File) -> None:
    x = f.input("x", ("s", 1, 4))
    f.output(f.op("GRU", x, weights(1, 12, 4), weights(1, 12, 4), hidden_size=4))


# What is refused.


def unmasked(f: File) -> None:
    x = f.input("x", (1, "s", 8))
    f.output(f.op("MatMul", f.op("Softmax", f.op("MatMul", x, f.op("Transpose", x, perm=(0, 2, 1))), name="seen"), x))


def averaged(f: File) -> None:
    f.output(f.op("ReduceMean", f.input("x", (1, "s", 8)), integers(1), name="seen"))


def largest(f: File) -> None:
    f.output(f.op("ReduceMax", f.input("x", (1, "s", 8)), integers(1), name="seen"))


def last_row(f: File) -> None:
    f.output(f.op("Slice", f.input("x", (1, "s", 8)), integers(-1), integers(2**40), integers(1), name="seen"))


def last_row_by_index(f: File) -> None:
    f.output(f.op("Gather", f.input("x", (1, "s", 8)), np.array(-1), axis=1, name="seen"))


def row_after_the_last(f: File) -> None:
    f.output(f.op("Concat", f.input("x", (1, "s", 8)), np.ones((1, 1, 8), np.float32), axis=1, name="seen"))


def mixed_by_a_reshape(f: File) -> None:
    f.output(f.op("Reshape", f.input("x", (1, "s", 8)), integers(1, 8, -1), name="seen"))


def summed_backward(f: File) -> None:
    x = f.op("Add", f.input("x", (1, "s", 4)), weights(4))
    f.output(f.op("CumSum", x, np.array(1), reverse=1, name="seen"))


def both_ways_in_time(f: File) -> None:
    x = f.input("x", ("s", 1, 4))
    f.output(
        f.op("GRU", x, weights(2, 12, 4), weights(2, 12, 4), hidden_size=4, direction="bidirectional", name="seen")
    )


def convolved_on_both_sides(f: File) -> None:
    x = f.op("Conv", f.input("x", (1, 4, "s")), weights(4, 4, 1), weights(4))
    f.output(f.op("Conv", x, weights(4, 4, 3), pads=(1, 1), name="seen"))


def normalised_over_rows(f: File) -> None:
    x = f.input("x", (1, 4, "s"))
    f.output(f.op("InstanceNormalization", x, np.ones(4, np.float32), np.ones(4, np.float32), name="seen"))


def multiplied_by_rows(f: File) -> None:
    x = f.op("Add", f.input("x", (1, "s", 8)), weights(8))
    f.output(f.op("MatMul", f.op("Transpose", x, perm=(0, 2, 1)), x, name="seen"))


def divided_by_their_number(f: File) -> None:
    x = f.input("x", (1, "s", 8))
    f.output(f.op("Div", x, f.op("Cast", rows_of(f, x), to=FLOAT), name="seen"))


def one_number_for_two_uses(f: File) -> None:
    """A length that would have to count rows of padding in one use, and not in another."""
    x = f.input("x", (1, "s", 8))
    length = f.input("length", (1,), INT64, lambda rows, _: integers(rows))
    begin = f.op("Sub", length, rows_of(f, x))
    y = f.op("Add", x, f.op("Cast", begin, to=FLOAT))
    f.output(f.op("Mul", y, f.op("Cast", length, to=FLOAT, name="seen")))


def seen_in_a_cache(f: File) -> None:
    x, cache = f.input("x", (1, 1, "s", 8)), f.input("cache", (1, 1, 16, 8))
    begin = f.input("begin", (1,), INT64, lambda _rows, _: integers(3))
    written = f.op("TensorScatter", cache, x, begin, axis=-2)
    f.output(f.op("Attention", x, written, written, name="seen"))


def masked_in_other_rows(f: File) -> None:
    """Rows of two heads become one dimension before the softmax: its rows are no longer those of the mask."""
    x, cache = f.input("x", (1, "s", 8)), f.input("cache", (1, 1, 16, 8))
    begin = f.input("begin", (1,), INT64, lambda _rows, _: integers(2))
    rows = f.op("Unsqueeze", x, integers(1))
    written = f.op("TensorScatter", cache, rows, begin, axis=-2)
    seen = f.op("LessOrEqual", np.arange(16)[None], f.op("Unsqueeze", f.op("Add", numbers(f, x), begin), integers(1)))
    mask = f.op("Where", seen, np.float32(0), np.float32(-np.inf))
    both = f.op("Reshape", f.op("Concat", *[f.op("Unsqueeze", mask, integers(0))] * 2, axis=0), integers(-1, 16))
    q = f.op("Reshape", f.op("Concat", rows, rows, axis=0), integers(-1, 8))
    scores = f.op(
        "Add", f.op("MatMul", q, f.op("Transpose", f.op("Squeeze", written, integers(0, 1)), perm=(1, 0))), both
    )
    f.output(f.op("Softmax", scores, name="seen"))


REFUSED = (
    unmasked, averaged, largest, last_row, last_row_by_index, row_after_the_last, mixed_by_a_reshape, summed_backward,
    both_ways_in_time, convolved_on_both_sides, normalised_over_rows, multiplied_by_rows, divided_by_their_number,
    one_number_for_two_uses, seen_in_a_cache, masked_in_other_rows,
)  # fmt: skip


def looked_up_in_one_number(f: File) -> None:
    """Indices of rows into a table of equal integers are rows."""
    x = f.input("x", (1, "s", 4))
    ids = f.input("ids", (1, "s"), INT64, lambda rows, _: np.zeros((1, rows), np.int64))
    places = f.op("Gather", integers(3, 3), ids)
    f.output(f.op("Add", x, f.op("Unsqueeze", f.op("Cast", places, to=FLOAT), integers(2))))


def masked_by_heads(f: File) -> None:
    """Two heads side by side with rows, each with a causal mask over a cache that is written by one row."""
    x, cache = f.input("x", (1, "s", 8)), f.input("cache", (16, 8))
    begin = f.input("begin", (1,), INT64, lambda _rows, _: integers(2))
    places = f.op("Add", numbers(f, x), begin)
    written = f.op("ScatterND", cache, f.op("Unsqueeze", places, integers(1)), f.op("Squeeze", x, integers(0)))
    seen = f.op("LessOrEqual", np.arange(16)[None], f.op("Unsqueeze", places, integers(1)))
    mask = f.op("Where", seen, np.float32(0), np.float32(-np.inf))
    q = f.op("Transpose", f.op("Reshape", x, integers(1, -1, 2, 4)), perm=(0, 2, 1, 3))
    k = f.op("Transpose", f.op("Reshape", written, integers(1, -1, 2, 4)), perm=(0, 2, 1, 3))
    scores = f.op("Add", f.op("MatMul", q, f.op("Transpose", k, perm=(0, 1, 3, 2))), mask)
    made = f.op("Transpose", f.op("MatMul", f.op("Softmax", scores), k), perm=(0, 2, 1, 3))
    f.output(f.op("Reshape", made, integers(1, -1, 8)))


ACCEPTED = (
    own_rows, flattened, masked_by_an_input, averaged_under_a_mask, causal_by_a_triangle, causal_by_trilu, after_a_past,
    static_cache, lengths_with_the_new_rows, lengths_and_places_apart, summed_forward, convolved_with_the_past,
    shifted_by_a_row, first_row, forward_in_time, looked_up_in_one_number, masked_by_heads,
)  # fmt: skip


def analysed(model: onnx.ModelProto, *sizes: int) -> PaddingEntry:
    return padding_of(open_model(model), checked_sizes({"s": sizes}), CompileOptions())


def theirs(model: onnx.ModelProto, feed: Mapping[str, Array]) -> dict[str, Array]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    names = [item.name for item in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(feed)), strict=True))


@pytest.mark.parametrize("sizes", [(2, 8), (1, 8), (8,)], ids=str)
@pytest.mark.parametrize("write", ACCEPTED, ids=lambda write: write.__name__)
def test_rows_of_padding_change_nothing_that_is_kept(write: Callable[[File], None], sizes: tuple[int, ...]) -> None:
    file = File()
    write(file)
    found = analysed(file.model, *sizes)
    for rows in (1, 3, 8):
        feed = {name: draw(rows, np.random.default_rng(rows)) for name, draw in file.feeds.items()}
        whole = theirs(file.model, padded(found, feed, {"s": rows}, {"s": 8}))
        ours = cut(found, whole, feed, {"s": rows}, {"s": 8})
        for name, array in theirs(file.model, feed).items():
            assert ours[name].shape == array.shape
            assert np.allclose(ours[name], array, atol=1e-5), name


@pytest.mark.parametrize("write", REFUSED, ids=lambda write: write.__name__)
def test_an_operator_that_padding_changes_is_refused_by_name(write: Callable[[File], None]) -> None:
    file = File()
    write(file)
    with pytest.raises(ChangedByPadding, match=r"padding would change 1 operator\n  along s, \w+ seen: \w+ ") as error:
        analysed(file.model, 2, 8)
    assert [refusal.name for _, refusal in error.value.refused] == ["seen"]
    assert "--exact" in str(error.value)


@pytest.mark.parametrize("network", ["qwen3-mini", "llama3_2-mini", "gemma3-mini"])
def test_decoders_of_the_zoo_may_have_rows_and_items_of_padding(network: str) -> None:
    sizes = checked_sizes({"sequence": (1, 16), "batch": (1, 4)})
    found = padding_of(open_model(network), sizes, CompileOptions())
    assert {entry.name: entry.restored.input for entry in found.outputs if entry.restored} == {
        f"present.{layer}.{kind}": f"past.{layer}.{kind}" for layer in (0, 1) for kind in ("key", "value")
    }
    token = next(entry for entry in found.outputs if entry.name == "token")
    assert {rows.axis: rows.dim for rows in token.rows} == {"batch": 0, "sequence": 1}
    assert not any(entry.counts for entry in found.inputs)


@pytest.mark.parametrize(("rows", "most"), [(1, 48), (64, 32), (96, 0)])
def test_drawn_places_leave_room_for_the_new_rows(rows: int, most: int) -> None:
    model = sized_source(open_model("qwen3-mini"), {"ids": (1, rows)}, None)
    drawn = [int(feed["begin"][0]) for feed in seeded_inputs(model, 64, 0)]
    assert min(drawn) == 0
    assert max(drawn) == most


@pytest.mark.parametrize(("rows", "least"), [(1, 1), (8, 8)])
def test_drawn_lengths_count_the_new_rows(rows: int, least: int) -> None:
    file = File()
    lengths_with_the_new_rows(file)
    model = sized_source(open_model(file.model), {"x": (1, 1, rows, 8)}, None)
    drawn = [int(feed["length"][0]) for feed in seeded_inputs(model, 64, 0)]
    assert (min(drawn), max(drawn)) == (least, 16)


def test_constants_that_a_batch_changes_are_the_same_constants() -> None:
    """The file fixes a batch of 2 in a target of a reshape, which becomes another constant for each batch."""
    file = File()
    x = file.input("x", (2, 12, 4))
    file.output(file.op("Relu", file.op("Reshape", x, integers(2, 3, 16))))
    found = padding_of(open_model(file.model), checked_sizes({"batch": (1, 4)}), CompileOptions())
    assert [(rows.axis, rows.dim) for rows in found.outputs[0].rows] == [("batch", 0)]
