"""What can be wrong with a model file: one message that names the thing, and nothing is read outside its folder."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from dsa_sched.frontend import load_model
from dsa_sched.frontend.model_file import read_model
from hw_models.errors import ModelError
from tests.dsa_sched.frontend.numpy_graph import layer_errors
from tests.dsa_sched.frontend.onnx_models import ModelBuilder
from tests.small_models import classifier, save


def small(folder: Path) -> Path:
    builder = ModelBuilder()
    return builder.save(folder, builder.node("Conv", builder.input(1, 2, 4, 4), builder.weights(3, 2, 3, 3)))


def refusal(path: Path) -> str:
    with pytest.raises(ModelError) as error:
        load_model(path)
    return str(error.value)


def test_a_good_file_is_read_and_hashed(tmp_path: Path) -> None:
    path = small(tmp_path)
    assert read_model(path).sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert load_model(str(path)).sha256 == read_model(path).sha256


def test_a_newer_format_than_onnxruntime_reads(tmp_path: Path) -> None:
    """What writes a model claims its own newest version of the format, whatever the operators need."""
    model = classifier()
    model.ir_version = onnx.IR_VERSION + 1
    loaded = load_model(save(model, tmp_path / "new.onnx"))
    onnxruntime.InferenceSession(loaded.source.SerializeToString(), providers=["CPUExecutionProvider"])


def test_every_truncation_is_refused_with_the_path(tmp_path: Path) -> None:
    path = small(tmp_path)
    raw = path.read_bytes()
    for length in range(0, len(raw), 7):
        path.write_bytes(raw[:length])
        assert str(path) in refusal(path) or "tensor c0" in refusal(path), length


@pytest.mark.parametrize("raw", [b"", b"PK\x03\x04 not a model", b"\x00" * 100, b"{}"])
def test_other_files_are_refused(raw: bytes, tmp_path: Path) -> None:
    path = tmp_path / "other.onnx"
    path.write_bytes(raw)
    assert str(path) in refusal(path)


@pytest.mark.parametrize("name", [b"relu0", b"Relu", b"x0", b"small"])
def test_names_that_are_no_text(name: bytes, tmp_path: Path) -> None:
    builder = ModelBuilder()
    path = builder.save(tmp_path, builder.node("Relu", builder.input(2)))
    path.write_bytes(path.read_bytes().replace(name, b"\xff" * len(name)))
    assert refusal(path).startswith(f"{path}: needs names in UTF-8")


def test_damaged_files_are_refused_or_read_but_never_crash(tmp_path: Path) -> None:
    builder = ModelBuilder()
    y = builder.node("Conv", builder.input(1, 2, 5, 5), builder.weights(2, 2, 3, 3), pads=[1, 1, 1, 1])
    path = builder.save(tmp_path, builder.node("Flatten", builder.node("MaxPool", y, kernel_shape=[2, 2])))
    raw, random, refused = path.read_bytes(), np.random.default_rng(0), 0
    for _ in range(300):
        damaged = bytearray(raw)
        for _ in range(random.integers(1, 4)):
            damaged[random.integers(len(raw))] = random.integers(256)
        path.write_bytes(damaged)
        try:
            load_model(path)
        except ModelError as error:
            refused += 1
            assert error.who  # noqa: PT017 - most damaged files are refused, some are still models
    assert refused > 100


def test_a_folder_is_no_model(tmp_path: Path) -> None:
    assert "needs a file, or one of" in refusal(tmp_path)


def test_files_above_the_bound_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.onnx"
    path.touch()
    os.truncate(path, (2 << 30) + 1)
    assert refusal(path) == f"{path}: needs at most 2 GiB; has 2.00 GiB"


def test_the_checkers_words_are_passed_on(tmp_path: Path) -> None:
    builder = ModelBuilder()
    y = builder.node("Relu", builder.input(2), alpha=0.5)
    said = refusal(builder.save(tmp_path, y))
    assert said.startswith(f"{tmp_path / 'small.onnx'}: needs a valid ONNX model; has ")
    assert "alpha" in said


def test_all_unknown_operators_at_once_with_names_and_shapes(tmp_path: Path) -> None:
    builder = ModelBuilder()
    x = builder.input(1, 4, 6)
    y = builder.node("Relu", builder.node("Frobnicate", x, name="strange"))
    y = builder.node("FusedGelu", builder.node("Det", y, name="volume"), domain="com.example", name="fused")
    assert refusal(builder.save(tmp_path, y)).splitlines() == [
        f"{tmp_path / 'small.onnx'}: 3 unsupported operators",
        "  Frobnicate strange (1x4x6): no such operator in standard ONNX",
        "  Det volume (?): this operator is not supported",
        "  FusedGelu fused (?): domain com.example is not standard ONNX",
    ]


def test_control_flow_is_refused(tmp_path: Path) -> None:
    builder = ModelBuilder()
    condition = builder.input(1, name="flag", dtype=TensorProto.BOOL)
    branch = helper.make_graph(
        [helper.make_node("Relu", ["x1"], ["r"])], "b", [], [helper.make_tensor_value_info("r", TensorProto.FLOAT, [2])]
    )
    builder.input(2)
    y = builder.node("If", condition, name="choice")
    builder.nodes[-1].attribute.extend(
        [helper.make_attribute("then_branch", branch), helper.make_attribute("else_branch", branch)]
    )
    assert "If choice (1): its condition is computed at run time" in refusal(builder.save(tmp_path, y))


def test_operators_on_constants_and_shapes_only_may_be_of_any_kind(tmp_path: Path) -> None:
    """A target shape computed as exporters do it: Shape, Gather, Mul, Concat, with Cast and Where on constants."""
    builder = ModelBuilder()
    x = builder.input(2, 3, 4)
    extent = builder.node("Gather", builder.node("Shape", x), builder.integers(0))
    rest = builder.node("Where", builder.constant([True], dtype=np.bool_), builder.integers(12), builder.integers(7))
    y = builder.node("Reshape", x, builder.node("Concat", extent, rest, axis=0))
    model = load_model(builder.save(tmp_path, y))
    assert [(op.kind, model.graph.by_name[op.outputs[0]].shape) for op in model.graph.ops] == [("view", (2, 12))]


def test_random_numbers_are_not_constants(tmp_path: Path) -> None:
    builder = ModelBuilder()
    y = builder.node("Add", builder.input(2), builder.node("RandomNormal", shape=[2], name="noise"))
    assert "RandomNormal noise ()" in refusal(builder.save(tmp_path, y))


def test_small_files_do_not_expand_into_huge_constants(tmp_path: Path) -> None:
    builder = ModelBuilder()
    bomb = builder.node("ConstantOfShape", builder.integers(1 << 20, 1 << 20))
    path = builder.save(tmp_path, builder.node("Add", builder.input(1), bomb))
    assert "constant v0: needs at most 2 GiB; has 8192 GiB" in refusal(path)
    builder = ModelBuilder()
    bomb = builder.node("Expand", builder.constant([1.0]), builder.integers(1 << 20, 1 << 20))
    path = builder.save(tmp_path, builder.node("Add", builder.input(1), bomb))
    assert "constant v0: needs at most 2 GiB" in refusal(path)


def test_types_that_are_not_computed(tmp_path: Path) -> None:
    builder = ModelBuilder()
    y = builder.node("Add", builder.input(2, dtype=TensorProto.INT32), builder.input(2, dtype=TensorProto.INT32))
    path = tmp_path / "int.onnx"
    path.write_bytes(builder.model(y, dtype=TensorProto.INT32).SerializeToString())
    assert "Add add0 (2, 2): v0 is int32; only floating-point values are computed" in refusal(path)


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16])
def test_every_floating_type_becomes_fp16(dtype: int, tmp_path: Path) -> None:
    builder = ModelBuilder()
    y = builder.node("Relu", builder.input(2, 3, dtype=dtype))
    path = tmp_path / "f.onnx"
    path.write_bytes(builder.model(y, dtype=dtype).SerializeToString())
    tensor = load_model(path).graph.by_name[y]
    assert (tensor.dtype, tensor.source_dtype) == ("float16", str(helper.tensor_dtype_to_np_dtype(dtype)))


def test_unnamed_and_repeated_names_become_unique(tmp_path: Path) -> None:
    builder = ModelBuilder()
    x = builder.input(2)
    for name in ("", "twice", "twice", "Relu_1", ""):
        x = builder.node("Relu", x, name=name)
    graph = load_model(builder.save(tmp_path, x)).graph
    assert [op.name for op in graph.ops] == ["Relu_0", "Relu_1_", "Relu_2", "Relu_1", "Relu_4"]


# External data


def external(folder: Path, location: str, **fields: str) -> Path:
    """A convolution whose weights lie in another file."""
    path = small(folder)
    model = onnx.load(path)
    tensor = model.graph.initializer[0]
    data = tensor.raw_data
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **fields}.items():
        entry = tensor.external_data.add()
        entry.key, entry.value = key, value
    path.write_bytes(model.SerializeToString())
    (folder / "weights.bin").write_bytes(b"####" + data)
    return path


def test_external_data_beside_the_model(tmp_path: Path) -> None:
    whole = load_model(small(tmp_path))
    path = external(tmp_path, "weights.bin", offset="4", length="216")
    model = load_model(path)
    assert model.graph == whole.graph
    assert model.sha256 != whole.sha256
    assert not any(t.external_data or t.data_location for t in model.source.graph.initializer)
    (tmp_path / "weights.bin").write_bytes(b"####" + bytes(216))
    assert load_model(path).sha256 != model.sha256


@pytest.mark.parametrize("location", ["../weights.bin", "/etc/hostname", "a/../../weights.bin", "link.bin", ""])
def test_external_data_elsewhere_is_not_read(location: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    path = external(folder, location, length="4")
    (tmp_path / "weights.bin").write_bytes(bytes(216))
    (folder / "link.bin").symlink_to(tmp_path / "weights.bin")
    assert refusal(path).startswith("tensor c0: needs external data inside the model's folder")


@pytest.mark.parametrize(
    ("location", "fields", "said"),
    [
        ("missing.bin", {}, "tensor c0: needs external data missing.bin next to the model; has No such file"),
        ("weights.bin", {"offset": "8"}, "tensor c0: needs 216 bytes for [3, 2, 3, 3]; has 212 bytes"),
        (
            "weights.bin",
            {"offset": "8", "length": "216"},
            "tensor c0: needs bytes 8 to 224 of weights.bin; has 220 bytes",
        ),
        ("weights.bin", {"offset": "-4"}, "tensor c0: needs a whole number of at least 0 as external offset; has '-4'"),
        (
            "weights.bin",
            {"length": "1e3"},
            "tensor c0: needs a whole number of at least 0 as external length; has '1e3'",
        ),
        (
            "weights.bin",
            {"length": "9" * 9999},
            "tensor c0: needs a whole number of at least 0 as external length; has '999",
        ),
    ],
)
def test_external_data_that_does_not_fit(location: str, fields: dict[str, str], said: str, tmp_path: Path) -> None:
    assert said in refusal(external(tmp_path, location, **fields))


def test_weights_of_another_size_than_declared(tmp_path: Path) -> None:
    path = small(tmp_path)
    model = onnx.load(path)
    model.graph.initializer[0].raw_data = bytes(100)
    path.write_bytes(model.SerializeToString())
    assert refusal(path) == "tensor c0: needs 216 bytes for [3, 2, 3, 3]; has 100 bytes"


# Names


def test_an_unknown_name_lists_the_zoo_and_the_nearest() -> None:
    said = refusal(Path("resnet5O"))
    assert "did you mean resnet50?" in said
    assert "squeezenet" in said


def test_a_file_wins_over_a_network_of_the_zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small(tmp_path).rename(tmp_path / "resnet50")
    monkeypatch.chdir(tmp_path)
    assert [op.kind for op in load_model("resnet50").graph.ops] == ["conv"]


def test_weights_stored_in_a_way_that_cannot_be_read(tmp_path: Path) -> None:
    """A segment of a larger tensor, and a list of numbers of another length than the shape."""
    parts, short = classifier(), classifier()
    parts.graph.initializer[0].segment.begin = 0
    short.graph.initializer[0].ClearField("raw_data")
    short.graph.initializer[0].float_data.extend([1.0, 2.0])
    for model in (parts, short):
        with pytest.raises(ModelError, match=r"tensor w1: needs the elements of \[8, 3, 3, 3\]"):
            load_model(save(model, tmp_path / "model.onnx"))


def test_attributes_that_refer_to_a_function(tmp_path: Path) -> None:
    model = classifier()
    model.graph.node[0].attribute[0].ref_attr_name = "outer"
    with pytest.raises(ModelError, match="Conv conv1: needs a value of attribute pads; has a reference to outer"):
        load_model(save(model, tmp_path / "model.onnx"))


@pytest.mark.parametrize("suffix", ["1:0:1", "1:0:1::start", "unscaled", "0"])
def test_inner_names_that_rewrites_could_make_are_changed(suffix: str, tmp_path: Path) -> None:
    """A constant and a value of such names beside the row of a value that is computed alone."""
    b = ModelBuilder()
    x = b.input(2, 7, 12)
    y = b.node("Relu", x, name="relu")
    row = b.node("Gather", y, b.constant(0, dtype=np.int64), axis=1)
    own = b.node("Tanh", x, name=f"relu::{suffix}", outputs=[f"{y}::{suffix}"])
    added = b.node("Add", own, b.constant([2.5], name=f"{x}::{suffix}"))
    model = load_model(b.save(tmp_path, row, added))
    inputs = {x: b.random.standard_normal((2, 7, 12)).astype(np.float32)}
    errors = layer_errors(model.graph, model.constants, model.source, inputs, model.origins)
    assert {row, added} <= set(errors)
    assert max(errors.values()) < 1e-4, errors


@pytest.mark.parametrize("which", ["input", "output"])
def test_inputs_and_outputs_of_such_names_keep_them(which: str, tmp_path: Path) -> None:
    """The value that they begin with gets another name."""
    b = ModelBuilder()
    x = b.input(2, 7, 12, name="y::1:0:1" if which == "input" else "x")
    y = b.node("Relu", x, outputs=["y"], name="y")
    row = b.node("Gather", y, b.constant(0, dtype=np.int64), axis=1)
    other = b.node("Tanh", x, outputs=["y::1:0:1"] if which == "output" else [])
    model = load_model(b.save(tmp_path, row, other))
    assert (model.graph.inputs, model.graph.outputs) == ((x,), (row, other))
    inputs = {x: b.random.standard_normal((2, 7, 12)).astype(np.float32)}
    errors = layer_errors(model.graph, model.constants, model.source, inputs, model.origins)
    assert {row, other} <= set(errors)
    assert max(errors.values()) < 1e-4, errors


def test_an_input_that_begins_with_another_one_is_refused(tmp_path: Path) -> None:
    b = ModelBuilder()
    y = b.node("Add", b.input(2, 7, name="x"), b.input(2, 7, name="x::rows"))
    with pytest.raises(ModelError, match=r"x::rows: needs inputs and outputs .* rename one of them"):
        load_model(b.save(tmp_path, y))


def test_names_with_separators_that_begin_with_no_other_name_stay(tmp_path: Path) -> None:
    """As PyTorch writes them: onnx::MatMul_12."""
    b = ModelBuilder()
    x = b.input(2, 12, name="onnx::x")
    y = b.node("MatMul", x, b.constant(np.eye(12), name="onnx::MatMul_12"), outputs=["onnx::y"])
    model = load_model(b.save(tmp_path, y))
    assert model.graph.inputs == ("onnx::x",)
    assert {tensor.name for tensor in model.source.graph.initializer} == {"onnx::MatMul_12"}


def test_a_name_of_many_separators_is_read_soon(tmp_path: Path) -> None:
    b = ModelBuilder()
    y = b.node("Relu", b.input(2, 7), outputs=["x" + "::y" * 1_000_000])
    load_model(b.save(tmp_path, b.node("Tanh", y)))
