"""Integers of an input are drawn as the model file says that they are meant."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from dsa_sched.zoo import seeded_inputs
from dsa_sched.zoo.meanings.declared_meanings import (
    Indices,
    Lengths,
    MaskMeaning,
    Meaning,
    Range,
    declared_meanings,
    with_declared,
)
from hw_models.errors import ModelError

KEY = "dsa-sched.input.x"


def model_of(
    shape: list[int], meaning: Meaning | None = None, said: str = "", kind: int = TensorProto.INT64
) -> onnx.ModelProto:
    """One input `x` and what the file says of it."""
    graph = helper.make_graph([], "net", [helper.make_tensor_value_info("x", kind, shape)], [])
    model = with_declared(helper.make_model(graph), {} if meaning is None else {"x": meaning})
    if said:
        model.metadata_props.append(onnx.StringStringEntryProto(key=KEY, value=said))
    return model


@pytest.mark.parametrize(
    ("meaning", "text"),
    [
        (MaskMeaning(), "mask"),
        (Lengths(12), "lengths 12"),
        (Indices((5,)), "indices 5"),
        (Indices((5, 7)), "indices 5, 7"),
        (Range(-32768, 32767), "range -32768 32767"),
        (Range(-0.1, 1.5e7), "range -0.1 15000000"),
    ],
)
def test_what_is_said_is_read_again(meaning: Meaning, text: str, tmp_path: Path) -> None:
    model = model_of([2, 2], meaning)
    assert {item.key: item.value for item in model.metadata_props} == {KEY: text}
    file = tmp_path / "model.onnx"
    onnx.save(model, file)
    assert declared_meanings(onnx.load(file)) == {"x": meaning}


def test_other_entries_are_nobodys_business() -> None:
    model = model_of([2])
    model.metadata_props.append(onnx.StringStringEntryProto(key="author", value="somebody"))
    assert declared_meanings(model) == {}


@pytest.mark.parametrize(
    "said",
    [
        "words",
        "indices",
        "indices 0",
        "indices -5",
        "indices 5; 7",
        "indices 5,",
        "indices 1_000",
        "indices \u0665",
        "indices 9999999999999999999",
        "indices " + ",".join(["5"] * 5000),
        "mask 3",
        "lengths",
        "lengths 0",
        "lengths 3, 4",
        "range",
        "range 3",
        "range 3 3",
        "range 5 inf",
        " ",
    ],
)
def test_other_words_are_refused(said: str) -> None:
    with pytest.raises(ModelError) as caught:
        seeded_inputs(model_of([2, 3], said=said), 1, 0)
    assert str(caught.value).startswith("input x: needs `mask`, `lengths N` or `indices N, M, ...`")
    assert KEY in str(caught.value)
    assert "correct or remove this entry" in str(caught.value)
    assert len(str(caught.value)) < 400


def test_indices_fill_their_range() -> None:
    (feed,) = seeded_inputs(model_of([40, 50], Indices((11,))), 1, 0)
    assert feed["x"].dtype == np.int64
    assert set(feed["x"].ravel().tolist()) == set(range(11))


def test_places_have_bounds_of_their_own() -> None:
    (feed,) = seeded_inputs(model_of([400, 3], Indices((2, 7, 1))), 1, 0)
    assert [set(column.tolist()) for column in feed["x"].T] == [set(range(2)), set(range(7)), {0}]


def test_bounds_of_other_places_are_refused() -> None:
    with pytest.raises(ModelError) as caught:
        seeded_inputs(model_of([4, 3], Indices((2, 7))), 1, 0)
    assert str(caught.value) == (
        "input x: needs one bound of its indices, or one for each place along the last axis; has 2 for the shape [4, 3]"
    )


def test_a_mask_is_ones_and_then_zeros_with_at_least_a_one() -> None:
    (feed,) = seeded_inputs(model_of([400, 6], MaskMeaning()), 1, 0)
    rows = feed["x"]
    assert set(rows.ravel().tolist()) == {0, 1}
    assert (np.diff(rows, axis=1) <= 0).all()
    assert set(rows.sum(axis=1).tolist()) == {1, 2, 3, 4, 5, 6}


def test_lengths_go_from_one_to_the_most() -> None:
    (feed,) = seeded_inputs(model_of([400], Lengths(5)), 1, 0)
    assert set(feed["x"].tolist()) == {1, 2, 3, 4, 5}


@pytest.mark.parametrize("kind", [TensorProto.INT32, TensorProto.BOOL, TensorProto.UINT8])
def test_a_mask_takes_the_type_of_the_input(kind: int) -> None:
    (feed,) = seeded_inputs(model_of([3, 4], MaskMeaning(), kind=kind), 1, 0)
    assert feed["x"].dtype == helper.tensor_dtype_to_np_dtype(kind)
    assert feed["x"][:, 0].all()


def test_an_index_of_a_scalar_and_a_mask_of_one() -> None:
    (index,) = seeded_inputs(model_of([], Indices((3,))), 1, 0)
    assert index["x"].shape == ()
    assert 0 <= int(index["x"]) < 3
    (mask,) = seeded_inputs(model_of([], MaskMeaning()), 1, 0)
    assert int(mask["x"]) == 1


def test_floats_are_drawn_whatever_is_said() -> None:
    said, unsaid = (
        seeded_inputs(model_of([5], meaning, kind=TensorProto.FLOAT), 1, 0)[0]["x"] for meaning in (MaskMeaning(), None)
    )
    np.testing.assert_array_equal(said, unsaid)


def test_a_range_holds_for_integers_and_numbers() -> None:
    (integers,) = seeded_inputs(model_of([400], Range(-3, 5)), 1, 0)
    assert (integers["x"].min(), integers["x"].max()) == (-3, 5)
    (floats,) = seeded_inputs(model_of([400], Range(10, 20.5), kind=TensorProto.FLOAT), 1, 0)
    assert floats["x"].min() >= 10
    assert floats["x"].max() <= 20.5
    assert floats["x"].std() > 1


def test_sets_differ() -> None:
    first, second = (feed["x"] for feed in seeded_inputs(model_of([100], Indices((1000,))), 2, 0))
    assert (first != second).any()
