"""What a verification of Gemmini's programs notices: `python benchmarks/gemmini_damages.py [--only NAME...]`.

A small network is quantised and compiled, one thing in its program is changed just before machine code is made of it,
and `verify` judges the run. Each damage must be found, by a fault of the simulator or by a comparison, or be equivalent
for the reason that stands with it. The table goes to benchmarks/results/gemmini_damages.md.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the two packages that are not installed

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import dsa_sched
from benchmarks.output import table
from codegen.gemmini.emit.executable import emit
from codegen.gemmini.isa.operations import ACCUMULATE, FULL_WIDTH, FUNCTIONS, decoded, operands
from codegen.gemmini.streams.streams import Do, Elements, Item, Loop, Operand, operands_of, stream_of
from codegen.gemmini.target import GemminiTarget
from codegen.target import ClusterFiles
from dsa_sched.io.atomic_write import write_whole
from dsa_sched.stages.compilation import CompileOptions
from dsa_sched.verification.verify import VerifyOptions, verify_model
from hw_models.chip import Chip
from hw_models.errors import TargetError
from isched.program.program import Instr, Program
from partitioner.ir.graph import Constants, Graph
from partitioner.planners.levels import O0

PAGE = Path(__file__).resolve().parent / "results" / "gemmini_damages.md"
SAMPLES = 128
Fields = dict[str, Any]
Change = Callable[[Instr], Instr | None]
"""A changed instruction of a program, itself where there is nothing to change, or None for one that is left out."""


def network() -> onnx.ModelProto:
    """A convolution with a step of two, maxima, a convolution of one channel per group, and one of single pixels."""
    random = np.random.default_rng(1)
    constants: dict[str, Any] = {}
    nodes: list[onnx.NodeProto] = []

    def node(kind: str, *inputs: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(kind, inputs, [f"v{len(nodes)}"], name=f"n{len(nodes)}", **attributes))
        return str(nodes[-1].output[0])

    def conv(x: str, shape: tuple[int, ...], **attributes: Any) -> str:
        names = [f"c{len(constants)}", f"c{len(constants) + 1}"]
        constants[names[0]] = random.normal(0, np.sqrt(2 / np.prod(shape[1:])), shape).astype(np.float32)
        constants[names[1]] = random.normal(0, 0.3, shape[0]).astype(np.float32)
        return node("Conv", x, *names, **attributes)

    x = node("Relu", conv("x", (24, 40, 3, 3), strides=[2, 2], pads=[1] * 4))
    x = node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    x = conv(x, (24, 1, 3, 3), pads=[1] * 4, group=24)
    y = node("Relu", conv(x, (20, 24, 1, 1)))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in (("x", (1, 40, 15, 18)), (y, (1, 20, 4, 5)))]  # fmt: skip
    stored = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "damaged", ends[:1], ends[1:], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def looped_network(taps: int = 1) -> onnx.ModelProto:
    """Two convolutions, of which the first one becomes loops of the accelerator's own: of matrices where it has one
    tap, else of convolutions, with a step of two."""
    random = np.random.default_rng(2)
    shapes = {"w0": (72, 40, taps, taps), "b0": (72,), "w1": (20, 72, 1, 1), "b1": (20,)}
    stored = [numpy_helper.from_array(random.normal(0, 0.2 / taps, shape).astype(np.float32), name)
              for name, shape in shapes.items()]  # fmt: skip
    step, pad = (2, taps // 2) if taps > 1 else (1, 0)
    nodes = [helper.make_node("Conv", ["x", "w0", "b0"], ["v0"], name="n0", strides=[step] * 2, pads=[pad] * 4),
             helper.make_node("Relu", ["v0"], ["v1"]),
             helper.make_node("Conv", ["v1", "w1", "b1"], ["y"], name="n1")]  # fmt: skip
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, channels, 11 * each, 15 * each))
            for name, channels, each in (("x", 40, step), ("y", 20, 1))]  # fmt: skip
    graph = helper.make_graph(nodes, "looped", ends[:1], ends[1:], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _each(change: Callable[[Item], Item | None]) -> Change:
    """A change of every item of a stream, loops around it kept."""

    def items(stream: Sequence[Item]) -> Iterator[Item]:
        for item in stream:
            if isinstance(item, Loop):
                body = tuple(items(item.body))
                made = change(Loop(item.count, body)) if body else None
            else:
                made = change(item)
            if made is not None:
                yield made

    def changed(instr: Instr) -> Instr | None:
        stream = tuple(items(stream_of(instr.operands))) if instr.operands else ()
        return replace(instr, operands=operands_of(stream)) if stream or not instr.operands else None

    return changed


def operation(
    mnemonic: str, change: Callable[[Fields], Fields | None], when: Callable[[Fields], bool] = bool
) -> Change:
    """A change of all operations of a name: fields in place of fields, None to leave it out."""

    def changed(item: Item) -> Item | None:
        found = decoded(FUNCTIONS[item.function], item.first.value, item.second.value) if isinstance(item, Do) else None
        if found is None or found.operation.mnemonic != mnemonic or not when(dict(found.fields)):
            return item
        assert isinstance(item, Do)
        fields = change(dict(found.fields))
        if fields is None:
            return None
        first, second = operands(mnemonic, **fields)
        return Do(item.function, replace(item.first, value=first), replace(item.second, value=second))

    return _each(changed)


def added(**numbers: int) -> Callable[[Fields], Fields]:
    """Fields that are larger by these numbers."""
    return lambda fields: {**fields, **{name: fields[name] + number for name, number in numbers.items()}}


def given(**values: float) -> Callable[[Fields], Fields]:
    """Fields with these values."""
    return lambda fields: {**fields, **values}


def dropped(fields: Fields) -> None:
    """Nothing."""
    del fields


def _first(change: Change, engine: str, opcode: str, source: str = "", which: int = 0) -> Callable[[Program], Program]:
    """One instruction of a program changed: of an engine, of a layer whose name holds `source`."""

    def planted(program: Program) -> Program:
        (stream,) = program.streams
        places = [place for place, instr in enumerate(stream.instrs)
                  if (instr.engine, instr.opcode) == (engine, opcode) and source in instr.source]  # fmt: skip
        if which >= len(places):
            return program
        place = places[which]
        made = change(stream.instrs[place])
        kept = (made,) if made is not None else ()
        instrs = (*stream.instrs[:place], *kept, *stream.instrs[place + 1 :])
        return replace(program, streams=(replace(stream, instrs=instrs),))

    return planted


def _gone(instr: Instr) -> None:
    del instr


def _unfenced(*which: int) -> Callable[[Program], Program]:
    """A program without some of its fences."""

    def planted(program: Program) -> Program:
        for dropped_before, place in enumerate(which):
            program = _first(_gone, "core", "barrier", which=place - dropped_before)(program)
        return program

    return planted


def _fewer(item: Item) -> Item:
    return Loop(item.count - 1, item.body) if isinstance(item, Loop) and item.count > 1 else item


def _stepped(item: Item) -> Item:
    """The second operand of moving goes on by one row more."""
    if not isinstance(item, Do) or not item.second.steps:
        return item
    *outer, last = item.second.steps
    return replace(item, second=Operand(item.second.value, (*outer, last + 1)))


def _named(before: str, after: str) -> Change:
    return _each(
        lambda item: replace(item, function=after) if isinstance(item, Do) and item.function == before else item
    )


def _elements(change: Callable[[Elements], Elements]) -> Change:
    return _each(lambda item: change(item) if isinstance(item, Elements) else item)


@dataclass(frozen=True, slots=True)
class Damage:
    """A change of a program of the network, quantised with one scale for each layer or with one per channel, or of the
    one with loops of that name; the reason where the changed program computes the same."""

    name: str
    plant: Callable[[Program], Program]
    per_layer: bool = True
    equivalent: str = ""
    looped: str = ""

    @property
    def network(self) -> str:
        """In words."""
        return (
            f"one per layer, {self.looped}" if self.looped else "one per layer" if self.per_layer else "one per channel"
        )


def _at(mnemonic: str, change: Callable[[Fields], Fields | None], engine: str, opcode: str, which: int = 0,
        when: Callable[[Fields], bool] = bool) -> Callable[[Program], Program]:  # fmt: skip
    return _first(operation(mnemonic, change, when), engine, opcode, which=which)


def _toggled(name: str, bit: int) -> Callable[[Fields], Fields]:
    return lambda fields: {**fields, name: fields[name] ^ bit}


def _less(fields: Fields) -> Fields:
    return {**fields, "scale": fields["scale"] * 0.98}


def _patch(fields: Fields) -> bool:
    return bool(fields["state"] == 0)


_NO_DATA = "what is to be added is no block, so nobody reads its extents"


def _of_loop(
    name: str, setting: str, change: Callable[[Fields], Fields | None], part: str = "added", equivalent: str = ""
) -> Damage:
    """One of what the core issues for the first loop changed."""
    plant = _first(operation(setting, change), "load", f"loop.{part}")
    loop = "loop_conv_ws" if setting.startswith("loop_conv_ws") else "loop_ws"
    kind = "a loop over a convolution" if loop == "loop_conv_ws" else "a loop"
    return Damage(f"{name} of {kind}", plant, equivalent=equivalent, looped=loop)


def _of_convolution(
    name: str, setting: int | str, change: Callable[[Fields], Fields | None], equivalent: str = ""
) -> Damage:
    setting = f"loop_conv_ws_config_{setting}" if isinstance(setting, int) else setting
    return _of_loop(name, setting, change, equivalent=equivalent)


LOOPED = (
    _of_loop("a row too few", "loop_ws_config_bounds", added(pad_i=1)),
    _of_loop("a column too few", "loop_ws_config_bounds", added(pad_j=1)),
    _of_loop("a number too few of each sum", "loop_ws_config_bounds", added(pad_k=1)),
    _of_loop("everything but the bounds", "loop_ws_config_bounds", dropped),
    _of_loop("the first factor from one byte on", "loop_ws_config_addrs_ab", added(a=1)),
    _of_loop("the second factor from one byte on", "loop_ws_config_addrs_ab", added(b=1)),
    _of_loop("no first factor", "loop_ws_config_addrs_ab", given(a=0)),
    _of_loop("no bias", "loop_ws_config_addrs_dc", given(d=0)),
    _of_loop("the result from one byte on", "loop_ws_config_addrs_dc", added(c=1)),
    _of_loop("the step of the second factor", "loop_ws_config_strides_ab", added(b_stride=1)),
    _of_loop("the step of the result", "loop_ws_config_strides_dc", added(c_stride=1)),
    _of_loop("the bias not added", "loop_ws", given(accumulate=0)),
    _of_loop("sums whole", "loop_ws", given(full_c=1)),
    _of_loop("the second factor turned", "loop_ws", given(transpose_b=1)),
    _of_loop("the other half", "loop_ws", given(a_half=2), equivalent="nothing else lies there yet"),
    _of_loop("everything but the settings", "loop_ws", dropped),
)

CONVOLUTIONS = (
    _of_convolution("every pixel for every second", 1, given(stride=1)),
    _of_convolution("extents not set", 1, dropped),
    _of_convolution("a channel less in the input", 1, added(in_channels=-1)),
    _of_convolution("a column more in the result", 1, added(out_columns=1)),
    _of_convolution("a column more in the kernel", 2, added(kernel=1)),
    _of_convolution("a filter too few", 2, added(part_channels=-1)),
    _of_convolution("a row of taps too few", 3, added(kernel_rows=-1)),
    _of_convolution("a column of taps too few", 3, added(kernel_columns=-1)),
    _of_convolution("a channel too few of each sum", 3, added(kernel_channels=-1)),
    _of_convolution("a column more in the input", 3, added(in_columns=1)),
    _of_convolution("no padding before columns", 3, given(left=0)),
    _of_convolution("no padding before rows", 3, given(top=0)),
    _of_convolution("a row too few", 4, added(rows=-1)),
    _of_convolution("a column too few", 4, added(columns=-1)),
    _of_convolution("taps apart", 4, given(dilation=2)),
    _of_convolution("the step of the input", 4, added(in_stride=1)),
    _of_convolution("the step of the weights", 4, added(weight_stride=1)),
    _of_convolution("the step of the result", 4, added(out_stride=1)),
    _of_convolution("the weights from one byte on", 5, added(weights=1)),
    _of_convolution("the result from one byte on", 5, added(output=1)),
    _of_convolution("the input from one byte on", 6, added(input=1)),
    _of_convolution("the bias from one number on", 6, added(bias=4)),
    _of_convolution("no bias", "loop_conv_ws", given(no_bias=1)),
    _of_convolution("maxima", "loop_conv_ws", given(no_pool=0)),
    _of_convolution("pixels side by side", "loop_conv_ws", given(pixels_per_row=2)),
    _of_convolution("every other pixel moved", "loop_conv_ws", given(downsample=1)),
    _of_convolution("everything but the settings", "loop_conv_ws", dropped),
    _of_convolution(
        "no Relu", "loop_conv_ws", given(activation=0), equivalent="without a pool, what is set for moving out counts"
    ),
    _of_convolution("the other half", "loop_conv_ws", given(a_half=2), equivalent="nothing else lies there yet"),
)

DAMAGES = (
    *LOOPED,
    *CONVOLUTIONS,
    Damage("fences between two layers dropped", _unfenced(4, 5)),
    Damage("one of two fences between two layers dropped", _unfenced(4), equivalent="the other one waits for the same"),
    Damage("the fence before the core reads sums dropped", _unfenced(4), False),
    Damage("all fences dropped", _unfenced(*range(12))),
    Damage("weights one row on", _at("mvin2", added(row=1), "load", "mvin2")),
    Damage("weights in another bank", _at("mvin2", added(row=4096), "load", "mvin2")),
    Damage("weights from one byte on", _at("mvin2", added(dram=1), "load", "mvin2")),
    Damage("weights not moved in", _first(_gone, "load", "mvin2")),
    Damage("a row of weights too few", _at("mvin2", added(rows=-1), "load", "mvin2")),
    Damage("a column of weights too few", _at("mvin2", added(columns=-1), "load", "mvin2")),
    Damage("zeros around the patch not made", _at("mvin", dropped, "load", "mvin", when=lambda f: not f["dram"])),
    Damage("the patch one pixel on", _at("mvin", added(dram=40), "load", "mvin", when=lambda f: bool(f["dram"]))),
    Damage("the patch one row on", _at("mvin", added(row=1), "load", "mvin", when=lambda f: bool(f["dram"]))),
    Damage("a loop of moving in once too few", _first(_each(_fewer), "load", "mvin")),
    Damage("a step of moving in one row too long", _first(_each(_stepped), "load", "mvin")),
    Damage("bytes from row to row of the patch", _at("config_ld", added(stride=1), "load", "config_ld", when=_patch)),
    Damage("rows from block to block", _at("config_ld", added(block_rows=-1), "load", "config_ld", when=_patch)),
    Damage("the patch scaled by a half", _at("config_ld", given(scale=0.5), "load", "config_ld", when=_patch)),
    Damage("moving in not set up", _first(_gone, "load", "config_ld", which=1)),
    Damage("no bias", _first(_gone, "load", "mvin3")),
    Damage("the bias added to what is there", _at("mvin3", _toggled("row", ACCUMULATE), "load", "mvin3")),
    Damage("sums not accumulated", _at("preload", _toggled("c_row", ACCUMULATE), "array", "compute")),
    Damage("sums one row on", _at("preload", added(c_row=1), "array", "compute")),
    Damage("a column of sums too few", _at("preload", added(c_columns=-1), "array", "compute")),
    Damage("preloading left out", _at("preload", dropped, "array", "compute")),
    Damage("other weights preloaded", _at("preload", added(b_row=1), "array", "compute")),
    Damage("one weight too few preloaded", _at("preload", added(b_rows=-1), "array", "compute")),
    Damage("the weights of the block before used again", _first(_named("compute_preloaded", "compute_accumulated"),
                                                                "array", "compute")),
    Damage("pixels one column on", _at("compute_preloaded", added(a_row=1), "array", "compute")),
    Damage("a pixel too few", _at("compute_preloaded", added(a_rows=-1), "array", "compute")),
    Damage("products left out", _at("compute_preloaded", dropped, "array", "compute")),
    Damage("a loop of products once too few", _first(_each(_fewer), "array", "compute")),
    Damage("every pixel for every second", _at("config_ex", given(a_stride=1), "array", "config_ex")),
    Damage("sums two rows apart", _at("config_ex", given(c_stride=2), "array", "config_ex")),
    Damage("outputs stationary", _at("config_ex", given(weight_stationary=0), "array", "config_ex")),
    Damage("the array not set up", _first(_gone, "array", "config_ex")),
    Damage("a scale two in a hundred too small", _at("config_st", _less, "store", "mvout")),
    Damage("no Relu", _at("config_st", given(activation=0), "store", "mvout")),
    Damage("Relu where there is none", _at("config_st", given(activation=1), "store", "mvout", which=2)),
    Damage("bytes from row to row of the result", _at("config_st", added(stride=1), "store", "mvout")),
    Damage("moving out not set up", _at("config_st", dropped, "store", "mvout")),
    Damage("sums moved out from one row on", _at("mvout", added(row=1), "store", "mvout")),
    Damage("sums moved out whole", _at("mvout", _toggled("row", FULL_WIDTH), "store", "mvout")),
    Damage("a loop of moving out once too few", _first(_each(_fewer), "store", "mvout")),
    Damage("maxima of two by two", _at("config_st", given(pool_size=2), "store", "mvout", which=1)),
    Damage("maxima of every pixel", _at("config_st", given(pool_stride=1), "store", "mvout", which=1)),
    Damage("no maxima", _at("config_st", given(pool_stride=0, pool_size=0), "store", "mvout", which=1)),
    Damage("a patch of maxima one column wider", _at("config_st", added(pool_in_columns=1), "store", "mvout", which=1)),
    Damage("the core cuts off", _first(_elements(lambda e: replace(e, rounding="truncate")), "core", "elements")),
    Damage("the core has another constant", _first(_elements(lambda e: replace(e, constants=(e.constants[0] ^ 1 << 20,
           *e.constants[1:]))), "core", "elements")),
    Damage("the core reads one element on", _first(_elements(lambda e: replace(e, sources=((e.sources[0][0],
           replace(e.sources[0][1], value=e.sources[0][1].value + 4)), *e.sources[1:]))), "core", "elements")),
    Damage("an extent of nothing that is added", _at("compute_preloaded", added(d_rows=-1), "array", "compute"),
           equivalent=_NO_DATA),
    Damage("a third state of moving in set up twice", _at("config_ld", given(block_rows=7), "load", "config_ld",
           when=lambda f: f["state"] == 2), equivalent="the bias has one block of columns in each instruction"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a verification of a damaged program said: how it was `found`, "fault" or "comparison", empty where it was
    not, and its words."""

    damage: Damage
    found: str
    words: str

    @property
    def right(self) -> bool:
        return bool(self.found) != bool(self.damage.equivalent)


@contextmanager
def planted(damage: Damage) -> Iterator[list[bool]]:
    """All machine code has the damage; the list tells, for each program, whether that changed it. Layers of the network
    without loops are tile after tile, as planned."""
    changed: list[bool] = []

    def damaged(program: Program, graph: Graph, constants: Constants, chip: Chip) -> ClusterFiles:
        made = damage.plant(program)
        changed.append(made != program)
        return emit(made, graph, constants, chip)

    def as_planned(program: Program, *_: object) -> Program:
        return program

    forms = GemminiTarget.in_fastest_forms if damage.looped else as_planned
    with (
        patch.object(GemminiTarget, "emit", staticmethod(damaged)),
        patch.object(GemminiTarget, "in_fastest_forms", staticmethod(forms)),
    ):
        yield changed


def quantised(damage: Damage, folder: Path) -> Path:
    """The network of a damage, quantised; made once for each folder."""
    path = folder / f"{damage.network}.onnx"
    if not path.exists():
        made = looped_network(taps=1 if damage.looped == "loop_ws" else 3) if damage.looped else network()
        dsa_sched.quantize(made, calibrate="seeded", inputs=1, per_layer=damage.per_layer).save(path)
    return path


def outcome(damage: Damage, folder: Path) -> Outcome:
    """The verdict on one damage. Raises ValueError for one that changes nothing."""
    path = quantised(damage, folder)
    with planted(damage) as changed:
        try:
            report = verify_model(path, "gemmini", CompileOptions(O0()), VerifyOptions(SAMPLES))
            found, words = ("comparison", report.failures[0]) if report.failures else ("", "")
        except TargetError as error:
            found, words = "fault", str(error)
    if not any(changed):
        raise ValueError(f"{damage.name}: nothing of the program is changed")
    return Outcome(damage, found, words)


def page(outcomes: Sequence[Outcome]) -> str:
    rows = [(each.damage.name, each.damage.network,
             each.found or ("equivalent" if each.damage.equivalent else "NOT FOUND"),
             each.damage.equivalent or _short(each.words)) for each in outcomes]  # fmt: skip
    return table(("damage", "scales", "found by", "said, or why it is none"), rows)


def _short(words: str) -> str:
    line = words.splitlines()[0].split("has a run without faults")[-1].replace("|", "/")
    return line if len(line) <= 110 else line[:107] + "..."


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", help="damages whose names hold one of these; writes nothing"
    )
    options = parser.parse_args(arguments)
    wanted = [damage for damage in DAMAGES if not options.only or any(word in damage.name for word in options.only)]
    with tempfile.TemporaryDirectory() as folder:
        outcomes = [outcome(damage, Path(folder)) for damage in wanted]
    print(page(outcomes))
    if not options.only:
        found = sum(bool(each.found) for each in outcomes)
        said = f"Made by `python benchmarks/gemmini_damages.py`: {len(outcomes)} damages, {found} found."
        text = f"# Damages of Gemmini's programs\n\n{said}\n\n{page(outcomes)}\n"
        write_whole(PAGE, lambda file: file.write(text.encode()))
    return int(not all(each.right for each in outcomes))


if __name__ == "__main__":
    sys.exit(main())
