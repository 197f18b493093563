"""One random model at every level, with and without scheduling: the bits of O0, and near the reference.

    model, chip, seed --load once--> O0 --> bits     (also: float32 reference, as far as rounding lets it judge)
                                     O1, O2, O3, astitch, each plain and scheduled --> the same bits

Compared are all values that a level leaves whole in the main memory. Each run has a seed of its own: memories hold NaN
patterns at first, data of a DMA land only when their completion is observed, cores interleave differently.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx

from codegen.neuralscale.target import TARGET
from dsa_sched.artifact.runner import execute
from dsa_sched.artifact.tensors import from_device
from dsa_sched.frontend import Model, load_model
from dsa_sched.pipeline.driver import compile_graph
from dsa_sched.stages.compilation import Compilation, CompileOptions
from dsa_sched.stages.targets import reader_of
from dsa_sched.verification.evidence import stored_values
from hw_models.chip import Chip
from hw_models.errors import DoesNotFit
from partitioner.planners.levels import LEVELS, planner_or_auto
from tests.chip_runs import small_chip, stcp920
from tests.fuzz.draw_elementwise import TABLED
from tests.fuzz.draw_words import LEAST_ROWS
from tests.partition_graphs import Seeded

__all__ = [
    "WAYS",
    "Difference",
    "Found",
    "Way",
    "at_o0",
    "chip_of",
    "compare",
    "compiled",
    "differences",
    "feed_of",
    "load",
    "outputs_at_o0",
    "run",
]

Array = npt.NDArray[np.generic]
Bits = Mapping[str, bytes]
KIB = 1024


@dataclass(frozen=True, slots=True)
class Way:
    """How a model is compiled."""

    level: str
    schedule: bool
    constants_ahead: bool = False

    def __str__(self) -> str:
        ahead = ", constants ahead" if self.constants_ahead else ""
        return f"{self.level}{' --schedule' if self.schedule else ''}{ahead}"


PLAIN = Way("O0", schedule=False)
WAYS = (
    *(Way(level, schedule) for level in LEVELS if level != "O0" for schedule in (False, True)),
    *(Way(level, schedule=True, constants_ahead=True) for level in ("O1", "O2", "O3")),
)
"""All ways that are held against `PLAIN`; what level auto makes is one of them."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The first value, in order of execution, whose bits are not those of O0."""

    way: Way
    value: str
    said: str

    def __str__(self) -> str:
        return f"{self.way}: {self.value}: {self.said}"


@dataclass(frozen=True, slots=True)
class Found:
    """What came of a model: ways that were run, those that did not fit the chip, and the differences."""

    ran: tuple[Way, ...]
    refused: tuple[str, ...]
    differences: tuple[Difference, ...]


def chip_of(seed: int, model: onnx.ModelProto) -> Chip:
    """Every third seed the stcp920, else one of two to eight cores with little memory, so that layers are cut; with
    room for weights where the model has operators by tables."""
    tables = 256 * KIB * any(node.op_type in TABLED for node in model.graph.node)
    choose = Seeded(seed + 500_000)
    if choose.number(0, 2) == 0:
        return stcp920()
    return small_chip(
        cores=choose.one_of((2, 3, 4, 5, 8)),
        data_bytes=choose.one_of((6, 16, 64)) * KIB,
        weights_bytes=choose.one_of((4, 16)) * KIB + tables,
        im_bytes=choose.one_of((2, 16)) * KIB,
        llb_bytes=choose.one_of((128, 1024, 8192)) * KIB,
    )


def load(model: onnx.ModelProto) -> Model:
    """The frontend's part, once for all levels. Raises ModelError where an operator is refused."""
    taken = onnx.ModelProto()
    taken.CopyFrom(model)
    return load_model(taken, judge=reader_of(stcp920(), TARGET))


def feed_of(model: onnx.ModelProto, seed: int) -> dict[str, Array]:
    """Inputs that half precision holds exactly, and integers that choose rows of every table."""
    random = np.random.default_rng(seed)
    feed: dict[str, Array] = {}
    for item in model.graph.input:
        shape = tuple(dim.dim_value for dim in item.type.tensor_type.shape.dim)
        dtype = onnx.helper.tensor_dtype_to_np_dtype(item.type.tensor_type.elem_type)
        if dtype.kind == "i":
            feed[item.name] = random.integers(-LEAST_ROWS, LEAST_ROWS, shape).astype(dtype)
        else:
            feed[item.name] = random.normal(0, 1, shape).astype(np.float16).astype(np.float32)
    return feed


def compiled(model: Model, chip: Chip, way: Way) -> Compilation:
    options = CompileOptions(
        planner_or_auto(way.level), schedule=way.schedule, keep_values=True, constants_ahead=way.constants_ahead
    )
    return compile_graph(model, chip, TARGET, options)


def run(compilation: Compilation, feed: Mapping[str, Array], seed: int) -> dict[str, bytes]:
    """All that the program leaves in the main memory, in order of execution."""
    artifact = compilation.artifact
    place = {name: (entry.address, entry.bytes) for name, entry in compilation.tensors.items()}
    names = stored_values(compilation)
    dumps = tuple(dict.fromkeys(place[name] for name in names))
    memory = execute(artifact, artifact.encode(dict(feed)), dumps, None, seed).memory
    return {name: memory[place[name]] for name in names}


def differences(way: Way, outputs: tuple[str, ...], ours: Bits, plain: Bits) -> Iterator[Difference]:
    """Every value whose bits are others, and outputs that are not there."""
    for name in outputs:
        if name not in ours:
            yield Difference(way, name, "an output that is not in the main memory")
    for name, data in ours.items():
        different = np.flatnonzero(np.frombuffer(data, np.uint16) != np.frombuffer(plain[name], np.uint16))
        if len(different):
            yield Difference(way, name, f"{len(different)} of {len(data) // 2} differ, first at {different[0]}")


def at_o0(model: Model, chip: Chip, feed: Mapping[str, Array], seed: int) -> tuple[Chip, Compilation, Bits]:
    """The plain program, on the stcp920 where the chip's memories are too small for it."""
    try:
        compilation = compiled(model, chip, PLAIN)
    except DoesNotFit:
        chip = stcp920()
        compilation = compiled(model, chip, PLAIN)
    return chip, compilation, run(compilation, feed, seed)


def outputs_at_o0(model: Model, feed: Mapping[str, Array], seed: int) -> dict[str, Array]:
    """The values of the model's outputs, in the file's axes, as the plain program for the stcp920 computes them."""
    compilation = compiled(model, stcp920(), PLAIN)
    bits = run(compilation, feed, seed)
    return {name: from_device(compilation.artifact.tensor(name), bits[name]) for name in model.graph.outputs}


def compare(model: Model, chip: Chip, feed: Mapping[str, Array], seed: int, ways: tuple[Way, ...] = WAYS) -> Found:
    """All ways against O0, the first difference of each. A way that does not fit the chip is told and left out."""
    chip, _, plain = at_o0(model, chip, feed, seed)
    ran, refused, found = [], [], []
    for position, way in enumerate(ways):
        try:
            bits = run(compiled(model, chip, way), feed, seed + 1 + position)
        except DoesNotFit as error:
            refused.append(f"{way}: {error}")
            continue
        ran.append(way)
        found += list(differences(way, model.graph.outputs, bits, plain))[:1]
    return Found(tuple(ran), tuple(refused), tuple(found))
