"""Networks of the zoo whose weights are drawn: room in halves, outputs that depend on inputs, what they are made of."""

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
from onnx import numpy_helper

from dsa_sched.frontend import load_model
from dsa_sched.frontend.network.shapes import fix_shapes
from dsa_sched.stages.compilation import CompileOptions
from dsa_sched.stages.targets import judge_of, target_of
from dsa_sched.verification.verify import verify_model
from dsa_sched.zoo import seeded_inputs, zoo_file, zoo_model
from dsa_sched.zoo.drawn_networks import DRAWN, drawn_model
from dsa_sched.zoo.networks import published_shapes, topology_bytes
from dsa_sched.zoo.sizes import network_size
from dsa_sched.zoo.topologies import decoder
from dsa_sched.zoo.topologies.conformer import distance_waves
from dsa_sched.zoo.topologies.sequence_builder import SequenceBuilder
from dsa_sched.zoo.topologies.swin import shift_mask
from dsa_sched.zoo.weights import ConstantRole, drawn
from hw_models.errors import ModelError
from hw_models.loading import load_chip
from partitioner.planners.levels import O0, O3

Array = npt.NDArray[np.generic]

MINIS = tuple(name for name in DRAWN if name.endswith("-mini"))
CHIP = load_chip("stcp920")
JUDGE = judge_of(CHIP, target_of(CHIP))
COMPILED = (*MINIS, "efficientnet_b0-mini", "inception_v3-mini")
LARGE = ("bert_large", "gpt2", "vit_b16_384", "whisper_encoder")
"""Those of full size that take onnxruntime more than seconds."""
TOO_LARGE = ("llama3_2_1b",)
"""Those of more than 2 GiB, which no model in memory may have: layers of it are tried by `benchmarks/llm.py`."""

INPUTS = 4
LEAST_DISTANCE = 0.1
LARGEST_VALUE = 2048.0
"""Of what is no mask; halves reach to 65,504."""

DIGEST_IN_A_FRESH_PROCESS = """
import hashlib
from dsa_sched.zoo.networks import built_model
print(hashlib.sha256(built_model("conformer_m-mini").SerializeToString(deterministic=True)).hexdigest())
"""


def sized(name: str) -> onnx.ModelProto:
    """With the extents of its publication."""
    model = zoo_model(name)
    fix_shapes(model, published_shapes(name), None)
    return model


def session_of(model: onnx.ModelProto, outputs: list[str]) -> onnxruntime.InferenceSession:
    asked = onnx.ModelProto()
    asked.CopyFrom(model)
    del asked.graph.output[:]
    asked.graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(asked.SerializeToString(), options, providers=["CPUExecutionProvider"])


def all_values(model: onnx.ModelProto, feed: dict[str, Array]) -> dict[str, Array]:
    names = [str(output) for node in model.graph.node for output in node.output if output]
    return dict(zip(names, session_of(model, names).run(names, feed), strict=True))


def check_network(name: str) -> None:
    """Valid, no value near the end of fp16's range but masks, and the outputs of one half of the inputs lie a tenth of
    their norm from those of the other half: with one number as the output, two inputs may well agree."""
    model = sized(name)
    onnx.checker.check_model(model)
    outputs = [item.name for item in model.graph.output]
    feeds = seeded_inputs(model, 2 * INPUTS, 0)
    session = session_of(model, outputs)
    runs = [session.run(outputs, feed) for feed in feeds]
    for number, output in enumerate(outputs):
        made = np.stack([run[number].astype(np.float64) for run in runs])
        first, others = made[:INPUTS], made[INPUTS:]
        assert np.linalg.norm(first - others) >= LEAST_DISTANCE * np.linalg.norm(first), output


@pytest.mark.parametrize("name", MINIS)
def test_outputs_of_a_mini_depend_on_its_inputs(name: str) -> None:
    check_network(name)


@pytest.mark.nightly
@pytest.mark.parametrize("name", [name for name in DRAWN if name not in (*MINIS, *LARGE, *TOO_LARGE)])
def test_outputs_of_a_network_depend_on_its_inputs(name: str) -> None:
    check_network(name)


@pytest.mark.nightly
@pytest.mark.parametrize("name", LARGE)
def test_outputs_of_a_large_network_depend_on_its_inputs(name: str) -> None:
    check_network(name)


@pytest.mark.parametrize("name", MINIS)
def test_values_of_a_mini_have_room_in_halves(name: str) -> None:
    """But for masks, which are as large as they can be and end in a Softmax."""
    check_range(name)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["bert_base", "conformer_m", "convnext_t", "dlrm", "siamese", "swin_t", "vit_b16"])
def test_values_of_a_network_have_room_in_halves(name: str) -> None:
    check_range(name)


def check_range(name: str) -> None:
    model = sized(name)
    (feed,) = seeded_inputs(model, 1, 0)
    values = all_values(model, feed)
    masks = {value for value in values if value.endswith("masked") or value.startswith("mask")}
    masks = {value for value in masks if np.abs(values[value].astype(np.float64)).max() > 1e38}
    floats = {value: np.abs(array).max() for value, array in values.items() if array.dtype.kind == "f"}
    assert all(np.isfinite(largest) for largest in floats.values())
    largest = {value: found for value, found in floats.items() if value not in masks}
    assert max(largest.values()) < LARGEST_VALUE, max(largest.items(), key=lambda item: item[1])
    assert min(floats[value] for value in floats) > 0 or name.startswith("bert")  # a mask of ones masks nothing


@pytest.mark.parametrize("name", COMPILED)
def test_macs_are_those_of_the_graph_that_is_compiled(name: str) -> None:
    model = load_model(name, published_shapes(name), judge=JUDGE)
    compiled, counted = sum(op.macs for op in model.graph.ops), network_size(name).macs
    if name == "wide_deep-mini":  # the first step of a recurrent operator has no product with a state of zeros
        assert 0.9 * counted < compiled < counted
    elif name.startswith("vit"):  # of the last of two layers only keys and values are made of all words
        assert 0.7 * counted < compiled < 0.75 * counted
    elif name in decoder.NETWORKS:  # attention reads the new rows next to the old ones that they overwrite
        assert counted < compiled < 1.01 * counted
    else:
        assert compiled == counted


@pytest.mark.slow(at_commit=2)
@pytest.mark.parametrize("name", COMPILED)
def test_minis_pass(name: str) -> None:
    """At O3, and at O0, where layers are judged."""
    report = verify_model(name, "stcp920", CompileOptions(O3(), shapes=tuple(published_shapes(name).items())))
    assert report.failures == ()
    # Two probabilities of wide_deep are nearer to each other than rounding can tell.
    assert report.end_to_end == ("no statement" if name == "wide_deep-mini" else "passed")


@pytest.mark.slow(at_commit=1)
@pytest.mark.parametrize("name", [name for name in COMPILED if name in DRAWN and name != "wide_deep-mini"])
def test_a_mini_takes_any_batch(name: str) -> None:
    """Reshapes copy the batch. Recurrent operators have the steps in front of it, so wide_deep has one of its own."""
    report = verify_model(name, "stcp920", CompileOptions(O0(), batch=2, shapes=tuple(published_shapes(name).items())))
    assert report.failures == ()
    assert report.batch == 2


def test_equal_bytes_under_other_hash_seeds_and_thread_counts() -> None:
    said = []
    for seed, threads in (("1", "1"), ("2", "2")):
        environment = os.environ | {"PYTHONHASHSEED": seed, "OPENBLAS_NUM_THREADS": threads}
        command = [sys.executable, "-c", DIGEST_IN_A_FRESH_PROCESS]
        said.append(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip())
    here = zoo_model("conformer_m-mini").SerializeToString(deterministic=True)
    assert said[0] == said[1] == hashlib.sha256(here).hexdigest()


def test_drawn_networks_leave_nothing_in_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    model, sha256 = zoo_file("vit_b16-mini")
    assert sha256 == hashlib.sha256(model.SerializeToString(deterministic=True)).hexdigest()
    assert list(tmp_path.rglob("*")) == []


def test_an_open_length_is_asked_for() -> None:
    """Of a network as published; its minis have fixed ones."""
    model = onnx.ModelProto.FromString(topology_bytes("bert_base"))
    with pytest.raises(ModelError) as caught:
        fix_shapes(model, {}, None)
    for name, shape in published_shapes("bert_base").items():
        assert f"{name} [batch, sequence]" in str(caught.value)
        assert f"--shape {name}=1," in str(caught.value)
        assert shape == (1, 128)


def test_weights_of_products_and_tables_have_their_variance() -> None:
    """MatMul [inputs, outputs], recurrences [directions, gates, inputs], rows of tables."""
    for role, shape, variance in (
        (ConstantRole.MATRIX, (64, 256), 1 / 64),
        (ConstantRole.RECURRENT, (1, 256, 64), 1 / 64),
        (ConstantRole.TABLE, (256, 64), 1.0),
        (ConstantRole.WEIGHT, (256, 64), 2 / 64),
    ):
        weights = drawn("net", "weight", role, shape).astype(np.float64)
        assert weights.var() == pytest.approx(variance, rel=0.03), role
        assert abs(weights.mean()) < 0.03 * np.sqrt(variance), role


def test_a_gain_multiplies_what_is_drawn_and_weights_are_shared_by_name() -> None:
    builder = SequenceBuilder("gained")
    x = builder.input("x", (1, 2, 64))
    once = builder.node("MatMul", "once", [x, builder.weight("weight", 64, 64, gain=0.25)])
    twice = builder.node("MatMul", "twice", [once, builder.weight("weight", 64, 64)])
    model = drawn_model("gained", builder.build(twice))
    assert [item.name for item in model.graph.initializer] == ["weight"]
    assert [node.op_type for node in model.graph.node] == ["MatMul", "MatMul"]
    expected = np.float32(0.25) * drawn("gained", "weight", ConstantRole.MATRIX, (64, 64))
    np.testing.assert_array_equal(numpy_helper.to_array(model.graph.initializer[0]), expected)


def test_siamese_towers_are_the_same() -> None:
    """Equal images are as far apart as nothing: the number that the bias alone makes."""
    model = zoo_model("siamese-mini")
    (feed,) = seeded_inputs(model, 1, 0)
    values = all_values(model, {"left": feed["left"], "right": feed["left"]})
    assert np.abs(values["distance"]).max() == 0
    assert len([item for item in model.graph.initializer if item.name.startswith("conv")]) == 2 * 4


def test_masks_of_swin_part_what_was_not_side_by_side() -> None:
    """Said another way: two places of a window belong together if both or neither came round from the other end."""
    extent, window = 14, 7
    mask = shift_mask(extent, window)
    step = window // 2
    for number, (row, column) in enumerate((row, column) for row in range(0, 14, 7) for column in range(0, 14, 7)):
        places = [(row + y, column + x) for y in range(window) for x in range(window)]
        round_again = [(y + step >= extent, x + step >= extent) for y, x in places]
        together = [[one == other for other in round_again] for one in round_again]
        np.testing.assert_array_equal(mask[number] == 0, together)
    assert set(np.unique(mask)) == {0.0, -100.0}


def test_swin_moves_rows_and_columns_and_back() -> None:
    model = zoo_model("swin_t-mini")
    (feed,) = seeded_inputs(model, 1, 0)
    values = all_values(model, feed)
    name = "stage0.layer1"
    moved = np.roll(values[f"{name}.map"], (-2, -2), (1, 2))
    np.testing.assert_array_equal(values[f"{name}.shift2"], moved)
    np.testing.assert_array_equal(values[f"{name}.unshift2"], np.roll(values[f"{name}.whole"], (2, 2), (1, 2)))


def test_conformer_finds_the_score_of_every_distance() -> None:
    """Row i, column j is the score of query i for the distance i - j; distances begin with the largest."""
    model = zoo_model("conformer_m-mini")
    (feed,) = seeded_inputs(model, 1, 0)
    values = all_values(model, feed)
    scores, near = values["layer0.attention.distance.scores"], values["layer0.attention.distance.near"]
    places = near.shape[-1]
    assert scores.shape[-1] == 2 * places - 1
    rows, columns = np.indices((places, places))
    np.testing.assert_array_equal(near, scores[..., rows, places - 1 - (rows - columns)])


def test_waves_of_a_distance_are_sines_of_it() -> None:
    waves = distance_waves(5, 8).astype(np.float64)
    assert waves.shape == (9, 8)
    for row, distance in enumerate(range(4, -5, -1)):
        rates = 10_000.0 ** (-np.arange(0, 8, 2) / 8)
        np.testing.assert_allclose(waves[row, ::2], np.sin(distance * rates), atol=2**-13)
        np.testing.assert_allclose(waves[row, 1::2], np.cos(distance * rates), atol=2**-13)
    assert (waves * 2**12 % 1 == 0).all()


def test_bert_does_not_see_what_the_mask_hides() -> None:
    model = zoo_model("bert_base-mini")
    (feed,) = seeded_inputs(model, 1, 0)
    feed["attention_mask"] = (np.arange(16) < 9).astype(np.int64)[None]
    session = session_of(model, ["pooled"])
    (seen,) = session.run(["pooled"], feed)
    hidden, shown = ({**feed, "input_ids": feed["input_ids"].copy()} for _ in range(2))
    hidden["input_ids"][0, 9:] = (hidden["input_ids"][0, 9:] + 1) % 100
    shown["input_ids"][0, 8] = (shown["input_ids"][0, 8] + 1) % 100
    np.testing.assert_array_equal(session.run(["pooled"], hidden)[0], seen)
    assert np.abs(session.run(["pooled"], shown)[0] - seen).max() > 0.01


def test_gpt2_sees_only_what_came_before() -> None:
    model = zoo_model("gpt2-mini")
    (feed,) = seeded_inputs(model, 1, 0)
    changed = {"input_ids": feed["input_ids"].copy()}
    changed["input_ids"][0, 10] = (changed["input_ids"][0, 10] + 1) % 100
    states = [all_values(model, each)["norm"].astype(np.float64) for each in (feed, changed)]
    different = np.abs(states[0] - states[1]).max(axis=(0, 2)) > 0
    assert different.tolist() == [False] * 10 + [True] * 6
