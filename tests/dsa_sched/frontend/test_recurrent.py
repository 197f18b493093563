"""LSTM, GRU and RNN, unrolled: in all ways in which ONNX writes them, against onnxruntime."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import pytest

from codegen.generic import NEUTRAL
from codegen.neuralscale.target import TARGET
from dsa_sched.analysis.figures import compiled_work
from dsa_sched.analysis.work import add_work
from dsa_sched.frontend import Model, load_model
from dsa_sched.frontend.network.refusals import Judge
from dsa_sched.pipeline.driver import compile_model
from dsa_sched.stages.compilation import CompileOptions
from dsa_sched.verification.verify import VerifyOptions, verify_model
from hw_models.errors import ModelError
from partitioner.ir.wants import Wants
from partitioner.planners.levels import O0, planner_or_auto
from tests.chip_runs import stcp920
from tests.dsa_sched.frontend.numpy_graph import layer_errors
from tests.dsa_sched.frontend.onnx_models import Attribute, ModelBuilder

Build = Callable[[ModelBuilder], tuple[str, ...]]
"""The names of all outputs."""
LARGEST_ERROR = 3e-3
"""Weights are rounded to fp16, and what a step makes of that goes into the next one."""
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
STEPS, BATCH, INPUTS, HIDDEN = 4, 3, 5, 6
ALL = (True, True, True)


def recurrent(
    op_type: str,
    *,
    bias: bool = True,
    lengths: Sequence[int] = (),
    states: str = "",
    peepholes: bool = False,
    outputs: Sequence[bool] = ALL,
    direction: str = "forward",
    **attributes: Attribute,
) -> Build:
    """`states` are "computed" or "constant"; `outputs` says which of Y, Y_h and Y_c have names."""

    def build(b: ModelBuilder) -> tuple[str, ...]:
        directions = 2 if direction == "bidirectional" else 1
        rows, turned = GATES[op_type] * HIDDEN, attributes.get("layout", 0)
        state = (BATCH, directions, HIDDEN) if turned else (directions, BATCH, HIDDEN)
        x = b.input(*((BATCH, STEPS, INPUTS) if turned else (STEPS, BATCH, INPUTS)))
        operands = [x, b.weights(directions, rows, INPUTS), b.weights(directions, rows, HIDDEN)]
        operands.append(b.weights(directions, 2 * rows) if bias else "")
        operands.append(b.constant(lengths, dtype=np.int32) if lengths else "")
        count = 2 if op_type == "LSTM" else 1
        match states:
            case "computed":
                operands += [b.input(*state) for _ in range(count)]
            case "constant":
                operands += [b.weights(*state) for _ in range(count)]
            case _:
                operands += [""] * count
        if peepholes:
            operands.append(b.weights(directions, 3 * HIDDEN))
        names = [f"y{n}" if named else "" for n, named in enumerate(outputs[: count + 1])]
        settings: dict[str, Attribute] = {"hidden_size": HIDDEN, "direction": direction, **attributes}
        b.node(op_type, *operands, name="cell", outputs=names, attributes=settings)
        return tuple(filter(None, names))

    return build


def drawn(builder: ModelBuilder) -> dict[str, npt.NDArray[np.float32]]:
    """Inputs."""
    shapes = {item.name: [dim.dim_value for dim in item.type.tensor_type.shape.dim] for item in builder.inputs}
    return {name: builder.random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def load(build: Build, folder: Path, wants: Wants = TARGET.wants) -> tuple[Model, dict[str, npt.NDArray[np.float32]]]:
    builder = ModelBuilder()
    path = builder.save(folder, *build(builder))
    return load_model(path, judge=Judge(wants)), drawn(builder)


WAYS = ("forward", "reverse", "bidirectional")
STATES = ("computed", "constant")
CASES: dict[str, Build] = {
    **{f"{op} {way}": recurrent(op, direction=way) for op in GATES for way in WAYS},
    **{f"{op} without bias": recurrent(op, bias=False) for op in GATES},
    **{f"{op} of lengths": recurrent(op, lengths=(2, 4, 3), direction="bidirectional") for op in GATES},
    **{f"{op} of short lengths": recurrent(op, lengths=(2, 1, 3), states="constant") for op in GATES},
    **{f"{op} of full lengths": recurrent(op, lengths=(STEPS,) * BATCH) for op in GATES},
    **{f"{op}, {s} states": recurrent(op, states=s, direction="bidirectional") for op in GATES for s in STATES},
    **{f"{op} clipped": recurrent(op, clip=0.3) for op in GATES},
    **{
        f"{op} with output {n} alone": recurrent(op, outputs=tuple(i == n for i in range(3)))
        for op, n in (("LSTM", 0), ("LSTM", 1), ("LSTM", 2), ("GRU", 0), ("GRU", 1), ("RNN", 1))
    },
    "LSTM with peepholes": recurrent("LSTM", peepholes=True, states="computed"),
    "LSTM with peepholes, constant states": recurrent("LSTM", peepholes=True, states="constant"),
    "LSTM with peepholes, both ways": recurrent("LSTM", peepholes=True, direction="bidirectional"),
    "LSTM, forgetting what enters": recurrent("LSTM", input_forget=1, states="computed"),
    "GRU, linear before reset": recurrent("GRU", linear_before_reset=1, direction="bidirectional"),
    "GRU, linear before reset, no bias": recurrent("GRU", linear_before_reset=1, bias=False),
    "GRU, linear before reset, states": recurrent("GRU", linear_before_reset=1, states="computed"),
    "other activations": recurrent("LSTM", activations=("HardSigmoid", "Softsign", "Relu"), clip=4.0),
    "activations with numbers": recurrent(
        "LSTM",
        activations=("HardSigmoid", "ScaledTanh", "Affine"),
        activation_alpha=(0.3, 0.8, 0.5),
        activation_beta=(0.4, 0.7, 0.1),
    ),
    "activations of each direction": recurrent(
        "GRU",
        activations=("Sigmoid", "Elu", "HardSigmoid", "LeakyRelu"),
        activation_alpha=(0.7, 0.25, 0.05),
        direction="bidirectional",
    ),
    "Softplus": recurrent("GRU", activations=("Sigmoid", "Softplus")),
    "a threshold": recurrent("RNN", activations=("ThresholdedRelu",), activation_alpha=(0.1,)),
}


@pytest.mark.spread(32)
@pytest.mark.parametrize("wants", [TARGET.wants, NEUTRAL], ids=["stcp920", "neutral"])
@pytest.mark.parametrize("name", CASES)
def test_our_graph_computes_what_the_file_says(name: str, wants: Wants, tmp_path: Path) -> None:
    model, inputs = load(CASES[name], tmp_path, wants=wants)
    errors = layer_errors(model.graph, model.constants, model.source, inputs)
    assert set(model.graph.outputs) <= set(errors)
    assert max(errors.values()) < LARGEST_ERROR, errors


@pytest.mark.spread(1)
@pytest.mark.parametrize("op_type", GATES)
@pytest.mark.commit
def test_time_may_be_the_second_axis(op_type: str, tmp_path: Path) -> None:
    """onnxruntime has no such layout: the bits are those of the other one."""
    results: list[Mapping[str, npt.NDArray[np.generic]]] = []
    inputs: dict[str, npt.NDArray[np.float32]] = {}
    for layout in (0, 1):
        builder = ModelBuilder()
        build = recurrent(op_type, states="computed", direction="bidirectional", layout=layout)
        path = builder.save(tmp_path, *build(builder))
        inputs = {name: array.swapaxes(0, 1) for name, array in inputs.items()} if layout else drawn(builder)
        results.append(compile_model(path, stcp920(), CompileOptions(O0())).artifact.run(inputs))
    for name, wanted in results[0].items():
        perm = (2, 0, 1, 3) if wanted.ndim == 4 else (1, 0, 2)
        np.testing.assert_array_equal(results[1][name], wanted.transpose(perm))


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (recurrent("RNN", direction="sideways"), "the shape of y0 is not static"),
        (recurrent("RNN", hidden_size=7), "hidden_size 7, where R has 6"),
        (recurrent("GRU", lengths=(2, 0, 3)), r"sequence_lens \[2, 0, 3\]; each is 1 to 4"),
        (recurrent("RNN", activations=("Cosine",)), "activation Cosine; ONNX has Affine, Elu"),
        (recurrent("RNN", activations=("Tanh", "Tanh")), "2 activations, where 1 are needed"),
        (recurrent("RNN", activations=("ScaledTanh",)), "activation ScaledTanh needs a number in activation_"),
    ],
)
def test_refusals(build: Build, said: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=said):
        load(build, tmp_path)


def computed_operand(position: int) -> Build:
    """An RNN with an operand that is an input of the network."""

    def build(b: ModelBuilder) -> tuple[str, ...]:
        shapes = {1: (1, HIDDEN, INPUTS), 2: (1, HIDDEN, HIDDEN), 3: (1, 2 * HIDDEN), 4: (BATCH,)}
        operands = [b.input(STEPS, BATCH, INPUTS)]
        for number, shape in shapes.items():
            if number == position:
                dtype = onnx.TensorProto.INT32 if number == 4 else onnx.TensorProto.FLOAT
                operands.append(b.input(*shape, dtype=dtype))
            else:
                operands.append(b.weights(*shape) if number < 4 else "")
        b.node("RNN", *operands, outputs=["", "last"], attributes={"hidden_size": HIDDEN})
        return ("last",)

    return build


@pytest.mark.parametrize(
    ("position", "said"),
    [
        (1, "the weights W are computed at run time; they must be constant"),
        (2, "the weights R are computed at run time"),
        (3, "the weights B are computed at run time"),
        (4, "sequence_lens is computed at run time; it must be constant, or left out"),
    ],
)
def test_operands_that_must_be_constant(position: int, said: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=said):
        load(computed_operand(position), tmp_path)


def test_a_length_that_nobody_unrolls_is_refused(tmp_path: Path) -> None:
    def build(b: ModelBuilder) -> tuple[str, ...]:
        x = b.input(2049, 1, 2)
        weights = b.weights(2, 3, 2), b.weights(2, 3, 3)
        return (b.node("RNN", x, *weights, attributes={"hidden_size": 3, "direction": "bidirectional"}),)

    with pytest.raises(ModelError, match="4098 steps; at most 4096 are unrolled"):
        load(build, tmp_path)


def test_weights_of_another_size_are_refused(tmp_path: Path) -> None:
    def build(b: ModelBuilder) -> tuple[str, ...]:
        operands = b.input(4, 1, 2), b.weights(1, 3, 2), b.weights(1, 3, 3), b.weights(1, 7)
        return (b.node("RNN", *operands, attributes={"hidden_size": 3}),)

    with pytest.raises(ModelError, match="B is 1x7, where 1x6 is needed"):
        load(build, tmp_path)


@pytest.mark.slow(at_commit=1)
@pytest.mark.parametrize("op_type", sorted(GATES))
@pytest.mark.parametrize("level", ["O3", "O1", "O2", "auto"])
def test_every_level_stores_the_same_bits(level: str, op_type: str, tmp_path: Path) -> None:
    """Of lengths that differ and both directions, on the simulated chip; each level is held to O0 bit by bit."""
    builder = ModelBuilder()
    build = recurrent(op_type, lengths=(2, 4, 3), states="computed", direction="bidirectional")
    path = builder.save(tmp_path, *build(builder))
    report = verify_model(path, stcp920(), CompileOptions(planner_or_auto(level)), VerifyOptions(workers=1))
    assert report.failures == ()


@pytest.mark.parametrize("level", ["O2", "O3"])
def test_weights_that_all_steps_read_come_from_the_main_memory_once(level: str, tmp_path: Path) -> None:
    steps, hidden = 8, 64
    builder = ModelBuilder()
    x = builder.input(steps, 1, hidden)
    weights = (builder.weights(1, 4 * hidden, hidden) for _ in range(2))
    path = builder.save(tmp_path, builder.node("LSTM", x, *weights, attributes={"hidden_size": hidden}))
    made = compile_model(path, stcp920(), CompileOptions(planner_or_auto(level)))
    constants = sum(array.nbytes for array in made.model.constants.values())
    moved = add_work(compiled_work(made).values()).moved_bytes["DDR->LLB"]
    assert constants <= moved < 1.1 * constants
