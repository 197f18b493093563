"""The graph's text form, its hash and its checks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegen.neuralscale.target import TARGET
from hw_models.errors import ModelError
from hw_models.loading import load_chip
from partitioner.ir.access import (
    Access,
    Full,
    Grouped,
    Index,
    Linear,
    Scaled,
    View,
    access_from_json,
    access_to_json,
)
from partitioner.ir.graph import (
    Attribute,
    Axis,
    Graph,
    LoopNest,
    Op,
    Tensor,
    content_hash,
    verify_graph,
)
from partitioner.ir.graph_text import parse_graph
from partitioner.ir.quantisation import Quantisation
from partitioner.ir.text import TextError

names = st.text(min_size=1, max_size=12)
axis_names = st.sampled_from(["n", "y", "x", "f", "ry", "rc", "i0", "scaled", "_k"])
positive = st.integers(1, 1 << 40)
integers = st.integers(-(1 << 40), 1 << 40)
terms = st.lists(st.tuples(axis_names, integers), max_size=3, unique_by=lambda term: term[0]).map(tuple)
indices: st.SearchStrategy[Index] = st.one_of(
    st.builds(Linear, terms, integers),
    st.builds(Grouped, axis_names, positive, positive, st.one_of(st.just(""), axis_names)),
    st.builds(Scaled, axis_names, positive, positive, integers, integers),
    st.just(Full()),
)
accesses = st.builds(Access, names, st.lists(indices, max_size=5).map(tuple))
reads = st.one_of(accesses, st.builds(View, names))
floats = st.floats(allow_nan=False)
attributes: st.SearchStrategy[Attribute] = st.one_of(
    integers,
    floats,
    st.text(max_size=8),
    st.lists(integers, max_size=4).map(tuple),
    st.lists(floats, max_size=4).map(tuple),
)
name_tuples = st.lists(names, max_size=3).map(tuple)
axes = st.builds(Axis, axis_names, positive, st.booleans())
stages = st.builds(
    LoopNest,
    names,
    st.lists(axes, max_size=4).map(tuple),
    accesses,
    st.lists(reads, max_size=3).map(tuple),
)
ops = st.builds(
    Op,
    names,
    names,
    name_tuples,
    name_tuples,
    st.dictionaries(names, attributes, max_size=3).map(lambda items: tuple(items.items())),
    st.lists(stages, max_size=3).map(tuple),
    positive,
    names,
)
scales = st.lists(st.floats(1e-30, 1e30), max_size=3).map(tuple)
zero_points = st.lists(st.integers(-128, 255), max_size=3).map(tuple)
tensors = st.builds(
    Tensor,
    names,
    st.lists(positive, max_size=5).map(tuple),
    st.sampled_from(["float16", "int64"]),
    st.lists(st.integers(0, 5), max_size=5).map(tuple),
    names,
    st.sampled_from(["", "ab" * 32]),
    st.none() | st.builds(Quantisation, scales, zero_points, st.none() | st.integers(0, 5)),
)
graphs = st.builds(
    Graph,
    names,
    name_tuples,
    name_tuples,
    st.lists(ops, max_size=3).map(tuple),
    st.lists(tensors, max_size=4).map(tuple),
)


@given(graphs)
@pytest.mark.commit
def test_text_form_is_read_back_as_it_was(graph: Graph) -> None:
    text = str(graph)
    assert parse_graph(text) == graph
    assert str(parse_graph(text)) == text


@given(reads)
def test_an_access_is_read_back_as_it_was(access: Access | View) -> None:
    assert access_from_json(access_to_json(access)) == access


def tensor(name: str, shape: tuple[int, ...], dtype: str = "float16") -> Tensor:
    return Tensor(name, shape, dtype, (), "float32")


def valid() -> Graph:
    """x --relu--> y, with a weight nobody reads."""
    domain = (Axis("i", 4),)
    index = (Linear((("i", 1),)),)
    stage = LoopNest("compute", domain, Access("y", index), (Access("x", index),))
    op = Op("r", "relu", ("x",), ("y",), (), (stage,), 0, "Relu")
    constant = Tensor("w", (2,), "float16", (), "float32", "00")
    return Graph("g", ("x",), ("y",), (op,), (tensor("x", (4,)), tensor("y", (4,)), constant))


def test_a_valid_graph_passes() -> None:
    verify_graph(valid())


def test_comments_and_blank_lines_are_no_items() -> None:
    assert parse_graph("# a comment\n\n" + str(valid()) + "\n  # another\n") == valid()


def test_hash_follows_every_part_of_the_text() -> None:
    graph = valid()
    changed = replace(graph, tensors=(*graph.tensors[:2], replace(graph.tensors[2], constant="01")))
    assert len({graph.hash, changed.hash, replace(graph, name="h").hash}) == 3
    assert graph.hash == valid().hash


def test_content_hash_knows_type_and_shape() -> None:
    array = np.arange(6, dtype=np.int16)
    same = np.ascontiguousarray(array.reshape(2, 3).T).T
    hashes = {content_hash(array), content_hash(array.view(np.float16)), content_hash(array.reshape(2, 3))}
    assert len(hashes) == 3
    assert content_hash(same) == content_hash(array.reshape(2, 3))


def one_op(**changes: object) -> Graph:
    graph = valid()
    return replace(graph, ops=(replace(graph.ops[0], **changes),))  # type: ignore[arg-type]


def with_stage(**changes: object) -> Graph:
    return one_op(stages=(replace(valid().ops[0].stages[0], **changes),))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("graph", "said"),
    [
        (replace(valid(), tensors=(*valid().tensors, tensor("x", (4,)))), "graph g: needs unique names"),
        (replace(valid(), ops=valid().ops * 2), "graph g: needs unique names"),
        (
            replace(valid(), tensors=(tensor("x", (0,)), *valid().tensors[1:])),
            "tensor x: needs positive ext",
        ),
        (replace(valid(), tensors=(tensor("x", (4,), "float8"), *valid().tensors[1:])), "tensor x: needs positive"),
        (one_op(inputs=("z",)), "operator r: needs inputs that are defined before it; has z"),
        (one_op(stages=()), "operator r: needs at least one stage"),
        (one_op(outputs=("x",)), "operator r: needs outputs written once; has x"),
        (one_op(outputs=("y", "q")), "operator r: needs outputs written once; has q"),
        (replace(valid(), outputs=("q",)), "graph g: needs outputs that some operator writes; has q"),
        (with_stage(reads=(Access("w", (Full(),)),)), "operator r, stage compute: needs reads of its inputs"),
        (with_stage(reads=(Access("x", ()),)), "operator r, stage compute: needs 1 indices of x; has 0"),
        (with_stage(writes=Access("y", (Linear((("j", 1),)),))), "operator r, stage compute: needs axes of its domain"),
        (
            with_stage(reads=(Access("x", (Linear((("j", 1),)),)),)),
            "operator r, stage compute: needs axes of its domain",
        ),
        (with_stage(reads=(Access("x", (Grouped("i", 2, 2, "j"),)),)), "needs axes of its domain; has j"),
        (with_stage(writes=Access("%t", (Linear((("i", 1),)),))), "operator r: needs a stage that writes each output"),
    ],
)
def test_what_is_wrong_with_a_graph_is_named(graph: Graph, said: str) -> None:
    with pytest.raises(ModelError) as error:
        verify_graph(graph)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "text: needs a graph line first"),
        ('graph name="g"', "line 1: needs a complete graph line"),
        (
            'graph name="g" inputs=[] outputs=[]\nfoo bar=1',
            "line 2: needs graph, tensor, prepared, op, stage or concluded; has foo",
        ),
        ('graph name="g" inputs=[] outputs=[]\n  tensor name=', "line 2: needs a JSON value for name"),
        ('graph name="g" inputs=[] outputs=[]\n  tensor name', "line 2: needs key=value"),
        ("stage name=1", "line 1: needs a complete stage line"),
        (str(valid()).replace('["x", "i"]', '["x", "i*"]'), "line 6, index expression: needs terms like 2*y"),
        (str(valid()).replace('[["x", "i"]]', "[[]]"), "line 6, access: needs a list"),
        (str(valid()).replace("i:4", "i"), "line 6: needs a complete stage line"),
    ],
)
def test_a_text_that_cannot_be_read_names_the_line(text: str, said: str) -> None:
    with pytest.raises(TextError) as error:
        parse_graph(text)
    assert said in str(error.value)


def quantised(quantisation: Quantisation, dtype: str = "int8", shape: tuple[int, ...] = (4,)) -> Graph:
    """The valid graph with such an input."""
    graph = valid()
    return replace(graph, tensors=(Tensor("x", shape, dtype, (), dtype, quantisation=quantisation), *graph.tensors[1:]))


@pytest.mark.parametrize(
    "quantisation", [Quantisation((0.1,), (-3,)), Quantisation((0.5, 1 / 3, 1e-30, 2.0), (0, 1, 127, -128), 0)]
)
def test_a_quantisation_is_carried_through_the_text(quantisation: Quantisation) -> None:
    graph = quantised(quantisation)
    verify_graph(graph)
    assert parse_graph(str(graph)) == graph
    assert graph.hash != valid().hash
    assert "quantisation" not in str(valid())


@pytest.mark.parametrize(
    ("graph", "said"),
    [
        (quantised(Quantisation((0.1,), (0,)), "float16"), "tensor x: needs one of the types int8, uint8, int32 to be"),
        (
            quantised(Quantisation((0.1,), (0,), 1)),
            "tensor x: needs an axis 1 of its scales; has int8 ",
        ),
        (quantised(Quantisation((0.1,), (0,), 0)), "tensor x: needs as many scales and zero points as indices, 4"),
        (quantised(Quantisation((0.1,), (0, 0))), "tensor x: needs as many scales and zero points as indices, 1"),
        (quantised(Quantisation((0.0,), (0,))), "tensor x: needs scales that are positive and finite"),
        (quantised(Quantisation((float("inf"),), (0,))), "tensor x: needs scales that are positive and finite"),
        (quantised(Quantisation((1.0,), (-1,)), "uint8"), "tensor x: needs zero points from 0 to 255; has .*point -1"),
    ],
)
def test_a_quantisation_that_does_not_suit_its_tensor_is_refused(graph: Graph, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        verify_graph(graph)


@pytest.mark.parametrize(
    "field",
    ["1", '{"scales": [1.0]}', '{"scales": 1, "zero_points": [0]}', '{"scales": [1.0], "zero_points": [0.5]}',
     '{"scales": ["a"], "zero_points": [0]}', '{"scales": [1.0], "zero_points": [0], "axis": "x"}'],
)  # fmt: skip
def test_a_quantisation_that_cannot_be_read_names_its_line(field: str) -> None:
    text = str(quantised(Quantisation((1.0,), (0,)))).replace('{"scales": [1.0], "zero_points": [0]}', field)
    with pytest.raises(TextError, match="line 2: needs a complete tensor line"):
        parse_graph(text)


def test_an_operator_that_does_not_take_quantised_values_is_refused_in_words() -> None:
    graph = quantised(Quantisation((0.1,), (-3,)))
    said = "x is int8, quantised with scale 0.1 and zero point -3; here relu takes float16"
    assert TARGET.accepts(graph, graph.ops[0], {}, load_chip("stcp920")) == said
    by_axis = TARGET.accepts(quantised(Quantisation((0.1,) * 4, (0,) * 4, 0)), graph.ops[0], {}, load_chip("stcp920"))
    assert by_axis is not None
    assert "quantised with 4 scales along axis 0" in by_axis
