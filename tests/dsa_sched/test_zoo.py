"""The zoo: the same bytes everywhere, clean files, small activations, outputs that depend on the input."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from dsa_sched.frontend import load_model
from dsa_sched.frontend.load import load_network
from dsa_sched.zoo import seeded_inputs, zoo_model, zoo_names
from dsa_sched.zoo.cache import zoo_key
from dsa_sched.zoo.evaluation import evaluate
from dsa_sched.zoo.networks import is_calibrated, topology_bytes
from dsa_sched.zoo.sizes import network_size
from dsa_sched.zoo.topologies.nasnet import nasnet_topology
from dsa_sched.zoo.topologies.topology import TopologyBuilder
from dsa_sched.zoo.topologies.unet import unet_topology
from hw_models.cache import Cache
from hw_models.errors import ModelError

Array = npt.NDArray[np.generic]
LARGEST_ACTIVATION = 128.0
LEAST_DISTANCE = 0.3
DIGEST_IN_A_FRESH_PROCESS = """
import hashlib
from dsa_sched.zoo.networks import built_model
print(hashlib.sha256(built_model("squeezenet").SerializeToString(deterministic=True)).hexdigest())
"""


@pytest.fixture(scope="module")
def new_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def calibrated_here(monkeypatch: pytest.MonkeyPatch, new_cache: Path) -> None:
    """Networks are calibrated by this code, not read from the user's cache; each once."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(new_cache))


@pytest.fixture
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, calibrated_here: None) -> None:
    """An empty cache for one test."""
    del calibrated_here
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def digest(model: onnx.ModelProto) -> str:
    return hashlib.sha256(model.SerializeToString(deterministic=True)).hexdigest()


def logits_name(model: onnx.ModelProto) -> str:
    last = model.graph.node[-1]
    return str(last.input[0] if last.op_type == "Softmax" else last.output[0])


def all_values(model: onnx.ModelProto, feed: dict[str, Array]) -> dict[str, Array]:
    """Every value that onnxruntime computes for the model as it is."""
    asked = onnx.ModelProto()
    asked.CopyFrom(model)
    del asked.graph.output[:]
    names = [node.output[0] for node in model.graph.node]
    asked.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(asked.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip(names, session.run(names, feed), strict=True))


def check_network(name: str) -> None:
    model = zoo_model(name)
    onnx.checker.check_model(model)
    first, second = (all_values(model, feed) for feed in seeded_inputs(model, 2, 0))
    largest = {value: float(np.abs(array).max()) for value, array in first.items()}
    assert max(largest.values()) < LARGEST_ACTIVATION, max(largest.items(), key=lambda item: item[1])
    assert all(np.isfinite(array).all() for array in first.values())
    logits, others = (values[logits_name(model)].astype(np.float64) for values in (first, second))
    assert np.linalg.norm(logits - others) >= LEAST_DISTANCE * np.linalg.norm(logits)
    assert logits.argmax() != others.argmax()


def test_names() -> None:
    assert zoo_names() == (
        "bert_base",
        "bert_base-mini",
        "bert_large",
        "bert_large-mini",
        "bvlc_alexnet",
        "conformer_m",
        "conformer_m-mini",
        "convnext_t",
        "convnext_t-mini",
        "densenet121",
        "dlrm",
        "dlrm-mini",
        "efficientnet_b0",
        "efficientnet_b0-mini",
        "gemma3-mini",
        "gemma3_270m",
        "gpt2",
        "gpt2-mini",
        "inception_v1",
        "inception_v2",
        "inception_v3",
        "inception_v3-mini",
        "llama3_2-mini",
        "llama3_2_1b",
        "mobilenet_v2",
        "mobilenet_v2-mini",
        "nasnet",
        "qwen3-mini",
        "qwen3_0_6b",
        "resnet18_tailor",
        "resnet18_tailor-mini",
        "resnet50",
        "shufflenet",
        "siamese",
        "siamese-mini",
        "squeezenet",
        "swin_t",
        "swin_t-mini",
        "unet",
        "vgg19",
        "vit_b16",
        "vit_b16-mini",
        "vit_b16_384",
        "vit_b16_384-mini",
        "whisper_encoder",
        "whisper_encoder-mini",
        "wide_deep",
        "wide_deep-mini",
        "zfnet512",
    )


def test_nasnet_has_over_a_thousand_operators_after_simplification(tmp_path: Path) -> None:
    """Whatever its weights are, so that none are calibrated here."""
    file = tmp_path / "nasnet.onnx"
    file.write_bytes(nasnet_topology().SerializeToString())
    network = load_network(file)
    assert len(network.nodes) >= 1000


def test_factors_of_a_resize_are_no_parameters() -> None:
    graph = unet_topology().graph
    weights = [tensor for tensor in graph.initializer if tensor.name.endswith((".weight.shape", ".bias.shape"))]
    assert len(weights) == 2 * 23
    assert network_size("unet").parameters == sum(int(numpy_helper.to_array(tensor).prod()) for tensor in weights)
    assert network_size("unet").operators == len(graph.node) - len(weights)


def test_an_unknown_name_is_answered_with_a_near_one_and_the_list() -> None:
    with pytest.raises(ModelError) as caught:
        zoo_model("resnet")
    assert "did you mean resnet50?" in str(caught.value)
    assert all(name in str(caught.value) for name in zoo_names())


@pytest.mark.parametrize(
    ("name", "learned", "normalised", "macs", "millions_of_activations"),
    [("resnet50", 25_557_032, 26_560, 4_089_184_256, 11.1), ("mobilenet_v2", 3_504_872, 17_056, 300_774_272, 6.7)],
)
def test_sizes_are_those_of_the_literature(
    name: str, learned: int, normalised: int, macs: int, millions_of_activations: float
) -> None:
    """Weights as PyTorch's models of these names count them, without the mean and variance of normalised channels."""
    size = network_size(name)
    assert size.parameters == learned + 2 * normalised
    assert size.macs == macs
    assert round(size.activation_bytes / 2e6, 1) == millions_of_activations


def test_resnet18_tailor_is_four_pairs() -> None:
    """3x3 and 1x1, ReLU after each; all but the first pair halve the extents and double the channels."""
    pairs = ((64, 64, 56), (64, 128, 28), (128, 256, 14), (256, 512, 7))
    size = network_size("resnet18_tailor")
    assert size.shape == (1, 64, 56, 56)
    assert size.operators == 16
    assert size.parameters == sum(wide * (9 * narrow + wide + 2) for narrow, wide, _ in pairs)
    assert size.macs == sum(extent**2 * wide * (9 * narrow + wide) for narrow, wide, extent in pairs)
    assert size.activation_bytes == 2 * sum(2 * wide * extent**2 for _, wide, extent in pairs)


MINIS = tuple(name for name in zoo_names() if name.endswith("-mini"))
CALIBRATED_MINIS = tuple(name for name in MINIS if is_calibrated(name))


@pytest.mark.parametrize("name", ["squeezenet", "conformer_m-mini"])
def test_the_graph_has_the_name_of_the_network(name: str) -> None:
    """The file of the wheel calls this one squeezenet_old."""
    assert zoo_model(name).graph.name == name


@pytest.mark.parametrize(
    "name",
    ["squeezenet", pytest.param("mobilenet_v2", marks=pytest.mark.nightly), "resnet18_tailor", *CALIBRATED_MINIS],
)
@pytest.mark.commit
def test_macs_are_those_of_the_graph_that_is_compiled(name: str) -> None:
    ops = load_model(name).graph.ops
    assert network_size(name).macs == sum(op.macs for op in ops)


@pytest.mark.spread(6)
@pytest.mark.parametrize("name", MINIS)
def test_a_mini_has_the_operators_of_its_network_and_a_fiftieth_of_the_work_at_most(name: str) -> None:
    full = next(each for each in zoo_names() if each.startswith(name.removesuffix("-mini")) and each not in MINIS)
    topologies = [onnx.ModelProto.FromString(topology_bytes(each)) for each in (name, full)]
    mine, whole = ({(node.op_type, *strides(node)) for node in topology.graph.node} for topology in topologies)
    assert mine == whole
    assert network_size(name).macs * 50 <= network_size(full).macs


def strides(node: onnx.NodeProto) -> tuple[int, ...]:
    """Extents of the kernel, and strides."""
    names = ("kernel_shape", "strides")
    return tuple(extent for item in node.attribute if item.name in names for extent in item.ints)


def test_both_bounds_of_every_relu6_matter() -> None:
    """At least a thousandth of the values lies on either; otherwise a compiler could drop one unseen."""
    model = zoo_model("mobilenet_v2-mini")
    (feed,) = seeded_inputs(model, 1, 0)
    values = all_values(model, feed)
    clipped = [values[node.output[0]] for node in model.graph.node if node.op_type == "Clip"]
    assert len(clipped) == 11
    assert min((array == bound).mean() for array in clipped for bound in (0, 6)) >= 1e-3


def test_blocks_of_mobilenet_add_to_their_input_a_quarter_of_its_size() -> None:
    """So that rounding errors do not grow from block to block; see Aims."""
    model = zoo_model("mobilenet_v2-mini")
    (feed,) = seeded_inputs(model, 1, 0)
    values = all_values(model, feed)
    sums = [node for node in model.graph.node if node.op_type == "Add"]
    assert len(sums) == 2
    shares = [values[node.input[1]].std() / values[node.input[0]].std() for node in sums]
    assert all(0.1 < share < 0.5 for share in shares), shares


@pytest.mark.parametrize("name", ["squeezenet", *CALIBRATED_MINIS])
def test_a_network_is_calibrated(name: str) -> None:
    check_network(name)


@pytest.mark.nightly
@pytest.mark.parametrize("name", [name for name in zoo_names() if is_calibrated(name)])
def test_every_network_is_calibrated(name: str) -> None:
    check_network(name)


def test_the_file_is_clean() -> None:
    model = zoo_model("squeezenet")
    assert [item.name for item in model.graph.input] == ["data_0"]
    assert {node.op_type for node in model.graph.node}.isdisjoint({"ConstantOfShape", "Constant"})
    weights = {item.name: item for item in model.graph.initializer}
    assert list(weights["fire2/squeeze1x1_w_0"].dims) == [16, 64, 1, 1]
    assert len(weights["fire2/squeeze1x1_w_0"].raw_data) == 4 * 16 * 64
    assert {name for node in model.graph.node for name in node.input} >= weights.keys()


@pytest.mark.commit
def test_equal_bytes_under_other_hash_seeds_and_thread_counts() -> None:
    said = []
    for seed, threads in (("1", "1"), ("2", "2")):
        environment = os.environ | {"PYTHONHASHSEED": seed, "OPENBLAS_NUM_THREADS": threads}
        command = [sys.executable, "-c", DIGEST_IN_A_FRESH_PROCESS]
        said.append(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip())
    assert said[0] == said[1] == digest(zoo_model("squeezenet"))


def cached_file(name: str) -> Path:
    folder = Cache.of_user("zoo").folder
    assert folder is not None
    return folder / zoo_key(name)


@pytest.mark.usefixtures("own_cache")
@pytest.mark.commit
def test_the_cached_model_is_the_built_one_and_a_damaged_file_is_replaced() -> None:
    built = digest(zoo_model("resnet18_tailor-mini"))
    file = cached_file("resnet18_tailor-mini")
    whole = file.read_bytes()
    assert digest(zoo_model("resnet18_tailor-mini")) == built
    flipped = bytearray(whole)
    flipped[len(flipped) // 2] ^= 1
    for damaged in (bytes(flipped), whole[: len(whole) // 2], b""):
        file.write_bytes(damaged)
        assert digest(zoo_model("resnet18_tailor-mini")) == built
        assert file.read_bytes() == whole


@pytest.mark.usefixtures("own_cache")
def test_a_cached_file_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    zoo_model("squeezenet")
    monkeypatch.setattr("dsa_sched.zoo.cache.built_model", lambda _name: pytest.fail("calibrated again"))
    zoo_model("squeezenet")


@pytest.mark.usefixtures("own_cache")
@pytest.mark.commit
def test_a_network_and_its_mini_lie_in_the_cache_together() -> None:
    names = ("resnet18_tailor-mini", "resnet18_tailor")
    for name in names:
        zoo_model(name)
    assert all(cached_file(name).exists() for name in names)


def test_a_cache_that_cannot_be_written_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert zoo_model("squeezenet").graph.node


def model_of(*inputs: onnx.ValueInfoProto) -> onnx.ModelProto:
    return helper.make_model(helper.make_graph([], "inputs", list(inputs), []))


def test_inputs_depend_on_seed_number_and_name_only() -> None:
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 32, 32])
    other = helper.make_tensor_value_info("other", TensorProto.FLOAT, [1, 3, 32, 32])
    alone = seeded_inputs(model_of(image), 2, 7)
    both = seeded_inputs(model_of(other, image), 3, 7)
    assert [np.array_equal(alone[number]["image"], both[number]["image"]) for number in (0, 1)] == [True, True]
    arrays = [both[0]["image"], both[1]["image"], both[0]["other"], seeded_inputs(model_of(image), 1, 8)[0]["image"]]
    assert len({array.tobytes() for array in arrays}) == 4


def test_images_have_low_frequencies_and_about_unit_variance() -> None:
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 64, 64, 64])
    ((array,),) = (feed.values() for feed in seeded_inputs(model_of(image), 1, 0))
    assert array.dtype == np.float32
    wide = array.astype(np.float64)
    assert 0.9 < wide.var() < 1.1
    power = np.abs(np.fft.fft2(wide)) ** 2
    cycles = np.minimum(np.arange(64), 64 - np.arange(64))
    low = (cycles[:, None] <= 8) & (cycles[None, :] <= 8)
    assert power[..., low].sum() > 0.95 * power.sum()


def test_inputs_take_the_declared_type() -> None:
    model = model_of(
        helper.make_tensor_value_info("row", TensorProto.FLOAT16, [5, 7]),
        helper.make_tensor_value_info("index", TensorProto.INT64, [100]),
        helper.make_tensor_value_info("flag", TensorProto.BOOL, [100]),
        helper.make_tensor_value_info("scalar", TensorProto.DOUBLE, []),
    )
    (feed,) = seeded_inputs(model, 1, 0)
    assert {name: (array.dtype.name, array.shape) for name, array in feed.items()} == {
        "row": ("float16", (5, 7)),
        "index": ("int64", (100,)),
        "flag": ("bool", (100,)),
        "scalar": ("float64", ()),
    }
    assert set(feed["index"].tolist()) <= set(range(8))


def test_inputs_of_a_dynamic_shape_are_refused() -> None:
    model = model_of(helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 3, 8, 8]))
    with pytest.raises(ModelError, match=r"input image: needs a static shape; has \[n, 3, 8, 8\]"):
        seeded_inputs(model, 1, 0)


NODES: dict[str, tuple[onnx.NodeProto, dict[str, tuple[int, ...]]]] = {
    "conv": (
        helper.make_node("Conv", ["x", "w", "b"], ["y"], strides=[2, 1], pads=[1, 0, 2, 1], dilations=[1, 2], group=2),
        {"x": (2, 4, 9, 8), "w": (6, 2, 3, 2), "b": (6,)},
    ),
    "depthwise": (helper.make_node("Conv", ["x", "w"], ["y"], group=4), {"x": (2, 4, 5, 5), "w": (4, 1, 3, 3)}),
    "gemm": (helper.make_node("Gemm", ["x", "w", "b"], ["y"], transB=1), {"x": (2, 5), "w": (7, 5), "b": (7,)}),
    "max_pool": (
        helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 0, 1]),
        {"x": (2, 3, 7, 7)},
    ),
    "average_pool": (
        helper.make_node("AveragePool", ["x"], ["y"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        {"x": (2, 3, 7, 7)},
    ),
    "average_pool_pad": (
        helper.make_node("AveragePool", ["x"], ["y"], kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1),
        {"x": (2, 3, 7, 7)},
    ),
    "lrn": (
        helper.make_node("LRN", ["x"], ["y"], size=3, alpha=0.5, beta=0.7, bias=1.5),
        {"x": (2, 9, 3, 3)},
    ),
    "flatten": (helper.make_node("Flatten", ["x"], ["y"]), {"x": (2, 3, 2, 2)}),
    "softmax": (helper.make_node("Softmax", ["x"], ["y"]), {"x": (2, 10, 1, 1)}),
    "concat": (helper.make_node("Concat", ["x", "z"], ["y"], axis=1), {"x": (2, 3, 2, 2), "z": (2, 1, 2, 2)}),
    "transpose": (helper.make_node("Transpose", ["x"], ["y"], perm=[0, 2, 1]), {"x": (2, 3, 4)}),
    "sum": (helper.make_node("Sum", ["x", "z", "x"], ["y"]), {"x": (2, 3), "z": (2, 3)}),
    "sigmoid": (helper.make_node("Sigmoid", ["x"], ["y"]), {"x": (2, 3, 4, 5)}),
    "mul": (helper.make_node("Mul", ["x", "z"], ["y"]), {"x": (2, 3, 4, 5), "z": (2, 3, 1, 1)}),
    "rows": (
        helper.make_node("Conv", ["x", "w"], ["y"], kernel_shape=[1, 7], pads=[0, 3, 0, 3]),
        {"x": (2, 4, 9, 8), "w": (6, 4, 1, 7)},
    ),
    "global_pool": (helper.make_node("GlobalAveragePool", ["x"], ["y"]), {"x": (2, 3, 4, 5)}),
}


def test_calibration_repeats_pixels_as_onnxruntime_does() -> None:
    builder = TopologyBuilder("doubled", "x", (2, 3, 4, 5))
    model = builder.build(builder.from_second_pixel("shift", builder.doubled("twice", "x")))
    data = np.random.default_rng(5).standard_normal((2, 3, 4, 5)).astype(np.float32)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,) = session.run(["shift"], {"x": data})
    constants = {item.name: numpy_helper.to_array(item) for item in model.graph.initializer}
    resize, shift = model.graph.node
    twice = evaluate(resize, [data, np.zeros(0), constants["twice.scales"]])
    ours = evaluate(shift, [twice, *(constants[name] for name in shift.input[1:])])
    np.testing.assert_array_equal(ours.astype(np.float32), expected)


def test_calibration_clips_and_adds_as_onnxruntime_does() -> None:
    builder = TopologyBuilder("clipped", "x", (2, 3, 4, 5))
    model = builder.build(builder.add("both", builder.relu6("again", builder.relu6("once", "x")), "x"))
    assert len(model.graph.initializer) == 2
    data = 6 * np.random.default_rng(5).standard_normal((2, 3, 4, 5)).astype(np.float32)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,) = session.run(["both"], {"x": data})
    constants = {item.name: numpy_helper.to_array(item) for item in model.graph.initializer}
    clip, _, add = model.graph.node
    clipped = evaluate(clip, [data, *(constants[name] for name in clip.input[1:])])
    assert ((clipped == 0).any(), (clipped == 6).any(), clipped.min(), clipped.max()) == (True, True, 0, 6)
    np.testing.assert_array_equal(evaluate(add, [clipped, data]).astype(np.float32), expected)


def test_other_maps_of_a_resize_are_not_guessed() -> None:
    node = helper.make_node("Resize", ["x", "", "s"], ["y"], mode="linear")
    with pytest.raises(NotImplementedError, match="repeating pixels"):
        evaluate(node, [np.zeros((1, 1, 2, 2)), np.zeros(0), np.array([1, 1, 2, 2], np.float32)])


@pytest.mark.parametrize("case", NODES)
def test_calibration_evaluates_nodes_as_onnxruntime_does(case: str) -> None:
    node, shapes = NODES[case]
    generator = np.random.default_rng(5)
    feeds = {name: generator.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    graph = helper.make_graph([node], case, inputs, [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 9)])
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,) = session.run(["y"], feeds)
    np.testing.assert_allclose(evaluate(node, [feeds[name] for name in node.input]), expected, rtol=1e-5, atol=1e-5)
