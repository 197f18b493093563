"""Small networks of the kinds that strangers bring, each compiled, run and judged as `dsa-sched verify` does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dsa_sched.stages.compilation import CompileOptions
from dsa_sched.verification.verify import VerifyOptions, verify_model
from partitioner.planners.levels import O0

Shape = tuple[int, ...]
Nodes = Sequence[onnx.NodeProto]

IMAGE: Shape = (1, 6, 13, 11)  # odd extents, which eight cores share unevenly
node = helper.make_node


def values(seed: int, *shape: int, scale: float = 0.3, shift: float = 0.0) -> np.ndarray:
    return (np.random.default_rng(seed).normal(0, scale, shape) + shift).astype(np.float32)


def network(
    nodes: Nodes, outputs: Sequence[str], inputs: dict[str, Shape] | None = None, **constants: np.ndarray
) -> onnx.ModelProto:
    given = {"x": IMAGE} if inputs is None else inputs
    graph = helper.make_graph(
        list(nodes),
        "kind",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in given.items()],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True)
    known = {item.name: item for item in (*inferred.graph.output, *inferred.graph.value_info)}
    del model.graph.output[:]
    model.graph.output.extend(known[name] for name in outputs)
    return model


def integers(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


W = values(0, 8, 6, 3, 3)
KINDS: dict[str, onnx.ModelProto] = {
    "shrink": network(
        [node("Conv", ["x", "w"], ["c"]), node("Shrink", ["c"], ["y"], lambd=0.25, bias=0.125)], ["y"], w=W
    ),
    "flatten_of_a_feature_map": network(
        [node("Conv", ["x", "w"], ["c"]), node("Flatten", ["c"], ["f"]), node("Gemm", ["f", "g"], ["y"])],
        ["y"],
        w=W,
        g=values(1, 8 * 11 * 9, 10, scale=0.05),
    ),
    "transposed_view": network(
        [
            node("Relu", ["x"], ["r"]),
            node("Transpose", ["r"], ["t"], perm=[0, 3, 1, 2]),
            node("Reshape", ["t", "s"], ["y"]),
        ],
        ["y"],
        s=integers(1, 66, 13),
    ),
    "concat_of_unequal_parts": network(
        [
            node("Conv", ["x", "w"], ["a"]),
            node("Conv", ["x", "v"], ["b"]),
            node("Concat", ["a", "b"], ["c"], axis=1),
            node("Relu", ["c"], ["y"]),
        ],
        ["y"],
        w=W,
        v=values(2, 3, 6, 3, 3),
    ),
    "stride_larger_than_kernel": network([node("Conv", ["x", "w"], ["y"], strides=[4, 4])], ["y"], w=W),
    "dilation": network([node("Conv", ["x", "w"], ["y"], dilations=[2, 2], pads=[2, 2, 2, 2])], ["y"], w=W),
    "asymmetric_padding": network([node("Conv", ["x", "w"], ["y"], pads=[0, 2, 1, 0])], ["y"], w=W),
    "grouped": network([node("Conv", ["x", "w"], ["y"], group=3)], ["y"], w=values(3, 12, 2, 3, 3)),
    "depthwise": network([node("Conv", ["x", "w"], ["y"], group=6, pads=[1, 1, 1, 1])], ["y"], w=values(3, 6, 1, 3, 3)),
    "mean_without_padding": network(
        [node("AveragePool", ["x"], ["y"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])], ["y"]
    ),
    "mean_with_padding": network(
        [node("AveragePool", ["x"], ["y"], kernel_shape=[3, 3], pads=[1, 0, 1, 2], count_include_pad=1)], ["y"]
    ),
    "maximum_of_negatives": network(
        [
            node("Relu", ["x"], ["r"]),
            node("Sub", ["minus", "r"], ["n"]),
            node("MaxPool", ["n"], ["y"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        ],
        ["y"],
        minus=np.full((1, 6, 1, 1), -2, np.float32),
    ),
    "two_consumers": network(
        [
            node("Conv", ["x", "w"], ["c"]),
            node("Relu", ["c"], ["a"]),
            node("Sigmoid", ["c"], ["b"]),
            node("Mul", ["a", "b"], ["y"]),
        ],
        ["y"],
        w=W,
    ),
    "output_in_the_middle": network([node("Conv", ["x", "w"], ["c"]), node("Relu", ["c"], ["y"])], ["c", "y"], w=W),
    "several_inputs_and_outputs": network(
        [node("Add", ["a", "b"], ["s"]), node("Mul", ["a", "b"], ["p"])],
        ["s", "p"],
        {"a": (2, 5, 7), "b": (2, 5, 7)},
    ),
    "softmax_over_rows": network([node("Softmax", ["x"], ["y"], axis=2)], ["y"]),
    "broadcast_products": network(
        [node("MatMul", ["a", "b"], ["m"]), node("MatMul", ["m", "w"], ["y"])],
        ["y"],
        {"a": (3, 5, 17), "b": (1, 17, 9)},
        w=values(5, 9, 4),
    ),
    "resize_and_add": network(
        [
            node("MaxPool", ["x"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
            node("Resize", ["p", "", "s"], ["u"], mode="nearest"),
            node("Conv", ["u", "w"], ["y"], pads=[1, 1, 1, 1]),
        ],
        ["y"],
        s=np.array([1, 1, 2, 2], np.float32),
        w=W,
    ),
    "pad_with_a_value": network(
        [node("Pad", ["x", "p", "v"], ["y"])], ["y"], p=integers(0, 1, 2, 0, 0, 0, 1, 3), v=np.array(1.5, np.float32)
    ),
    "slice_and_split": network(
        [
            node("Slice", ["x", "first", "to", "axes", "steps"], ["s"]),
            node("Split", ["s", "sizes"], ["a", "b"], axis=1),
            node("Relu", ["a"], ["r"]),
        ],
        ["r", "b"],
        to=integers(12, 2),
        axes=integers(2, 3),
        steps=integers(2, -3),
        sizes=integers(2, 4),
        first=integers(1, 10),
    ),
    "reduce_mean": network([node("ReduceMean", ["x"], ["y"], axes=[1], keepdims=0)], ["y"]),
    "activations": network(
        [
            node("Clip", ["x", "low", "high"], ["a"]),
            node("LeakyRelu", ["a"], ["b"], alpha=0.1),
            node("HardSwish", ["b"], ["c"]),
            node("Tanh", ["c"], ["y"]),
        ],
        ["y"],
        low=np.array(-1.25, np.float32),
        high=np.array(2.0, np.float32),
    ),
    "gemm_with_both_transposes": network(
        [node("Gemm", ["a", "w", "c"], ["y"], transA=1, transB=1, alpha=0.5, beta=2.0)],
        ["y"],
        {"a": (12, 5)},
        w=values(6, 9, 12),
        c=values(7, 9),
    ),
    "normalisation_of_neighbours": network([node("LRN", ["x"], ["y"], size=5, alpha=1e-2, beta=0.75)], ["y"]),
    "channel_shuffle": network(
        [
            node("Reshape", ["x", "split"], ["a"]),
            node("Transpose", ["a"], ["b"], perm=[0, 2, 1, 3, 4]),
            node("Reshape", ["b", "back"], ["c"]),
            node("Conv", ["c", "w"], ["y"]),
        ],
        ["y"],
        split=integers(1, 3, 2, 13, 11),
        back=integers(1, 6, 13, 11),
        w=W,
    ),
    "scale_and_shift_that_cannot_fold": network(
        [
            node("Relu", ["x"], ["r"]),
            node("BatchNormalization", ["r", "g", "b", "m", "v"], ["n"]),
            node("Conv", ["n", "w"], ["y"]),
        ],
        ["y"],
        g=values(8, 6, shift=1.0),
        b=values(9, 6),
        m=values(10, 6),
        v=np.abs(values(11, 6, shift=1.0)),
        w=W,
    ),
}


@pytest.mark.spread(13)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.commit
def test_the_kind_verifies(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"{kind}.onnx"
    path.write_bytes(KINDS[kind].SerializeToString())
    report = verify_model(path, "stcp920", CompileOptions(O0()), VerifyOptions(workers=1))
    assert report.passed, report.failures
