"""The order of issue: streams in pieces, and tiles of which the next one is moved in while this one computes."""

from __future__ import annotations

import re
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from codegen.gemmini import forms
from codegen.gemmini.isa.operations import FUNCTIONS, decoded
from codegen.gemmini.kernels.issue_order import OrderedLayer
from codegen.gemmini.streams.pieces import Touching, pieces
from codegen.gemmini.streams.streams import Do, Item, Loop, Operand, dynamic_count, looped
from codegen.gemmini.target import TARGET
from dsa_sched.pipeline.driver import compile_clusters
from dsa_sched.stages.compilation import CompileOptions, Lowered
from dsa_sched.verification.verify import VerifyOptions, verify_model
from hw_models.loading import load_chip
from isched.program.program import Program
from isched.timing.cycle_model import time_program, time_streams
from partitioner.planners.levels import O0
from tests.codegen.gemmini.quantised_networks import convolution
from tests.codegen.gemmini.test_machine import IN, OUT, ran
from tests.codegen.gemmini.test_networks import NETWORKS
from tests.small_models import save

CHIP = load_chip("gemmini")
STEPS = ({"dram": 640, "row": 700}, {"dram": 160, "row": 100}, {"dram": 16, "row": 16})


def moves(mnemonic: str, start: int, rows: int = 1) -> tuple[Item, ...]:
    """Three loops, of 3, 4 and 5 passes, and one of two passes behind them."""
    inner = looped(mnemonic, STEPS, dram=start, row=0, columns=16, rows=rows)
    after = looped(mnemonic, STEPS[:1], dram=start + 2000, row=90, columns=16, rows=rows)
    return Loop(3, (Loop(4, (Loop(5, (inner,)),)),)), Loop(2, (after,))


@pytest.mark.parametrize("most", [1, 3, 7, 20, 100])
def test_pieces_do_what_the_stream_does(most: int) -> None:
    config = (looped("config_ld", (), state=0, pixels_per_row=1, scale=1.0, stride=16),
              looped("config_st", (), stride=16, scale=1.0))  # fmt: skip
    data = bytes(n * 7 % 251 for n in range(4096))
    whole = ran((*config, *moves("mvin", IN), *moves("mvout", OUT)), data)
    cut = [pieces(moves(mnemonic, start), most) for mnemonic, start in (("mvin", IN), ("mvout", OUT))]
    for stream in cut:
        assert sum(dynamic_count(piece) for piece in stream) == 62
        assert max(dynamic_count(piece) for piece in stream) <= most
    result = ran((*config, *(item for stream in cut for piece in stream for item in piece)), data)
    assert (whole.fault, result.fault) == ("", "")
    assert result.read(OUT, 4096) == whole.read(OUT, 4096)
    assert result.counts["mvin"] == whole.counts["mvin"] == 62


def executed(stream: tuple[Item, ...], passes: tuple[int, ...] = ()) -> list[dict[str, int]]:
    """Fields of all operations, one by one."""
    found: list[dict[str, int]] = []
    for item in stream:
        if isinstance(item, Loop):
            for number in range(item.count):
                found += executed(item.body, (*passes, number))
        else:
            assert isinstance(item, Do)
            words = [operand_at(operand, passes) for operand in (item.first, item.second)]
            operation = decoded(FUNCTIONS[item.function], *words)
            assert operation is not None
            found.append({name: int(value) for name, value in operation.fields})
    return found


def operand_at(operand: Operand, passes: tuple[int, ...]) -> int:
    return operand.value + sum(step * number for step, number in zip(operand.steps, passes, strict=True))


def test_a_piece_touches_the_smallest_range_of_rows() -> None:
    touching = Touching(16, [(16, 40)] * 3)
    for piece in pieces(moves("mvin", IN, rows=4), 7):
        _, (written,) = touching.regions(piece)
        rows = [fields["row"] for fields in executed(piece)]
        assert (written.offset_bytes, written.end_bytes) == (16 * min(rows), 16 * (max(rows) + 4))


def program(path: Path) -> Program:
    (part,) = compile_clusters(path, "gemmini", CompileOptions(O0()))
    assert isinstance(part.made, Lowered)
    made = part.made.program
    read = TARGET.trace(part.files.files[part.files.executable], 1, CHIP)
    assert time_streams(read, CHIP).cycles == time_program(made, CHIP, TARGET).cycles
    return made


def test_the_next_tile_is_moved_in_while_this_one_computes(tmp_path: Path) -> None:
    """Nearly all is computing; tile after tile, much is waiting for what moves."""
    path = save(convolution(28, 28, 128, 128, kernel=3, pad=1, groups=2), tmp_path / "net.onnx")
    made = program(path)
    (decision,) = made.decisions
    assert decision.verdict.endswith("the next one moved in meanwhile")
    fastest, planned = (float(number.replace(",", "")) for number in
                        re.findall(r"([\d,]*\d)(?: cycles|$)", decision.reason))  # fmt: skip
    assert fastest < 0.9 * planned
    spans = [span for span in time_program(made, CHIP, TARGET).spans if span.source == decision.subject]
    computing = sum(span.end - span.start for span in spans if span.unit == "array")
    assert computing > 0.9 * fastest


FORCED = ("odd extents", "stem", "many channels", "dilated", "every second pixel", "residual", "narrow groups",
          "groups wider than the array")  # fmt: skip


def test_a_patch_that_stays_is_not_taken_for_the_same_value_added(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Channels inside: the next tile has the same patch, but other channels of what is added."""
    orders, falling = OrderedLayer.orders, count(10**12, -1)
    monkeypatch.setattr(OrderedLayer, "orders", lambda self: (each for each in orders(self) if each.channels_inside))
    monkeypatch.setattr(forms, "time_streams", lambda *_: SimpleNamespace(cycles=float(next(falling))))
    path = save(NETWORKS["own input added"](), tmp_path / "net.onnx")
    assert any("channels inside, the next one moved in" in decision.verdict for decision in program(path).decisions)
    assert verify_model(path, "gemmini", CompileOptions(O0()), VerifyOptions(samples=64)).failures == ()


@pytest.mark.parametrize("name", FORCED)
def test_layers_in_another_order_hold(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever the cycle model says, the last form is taken, which is another order where there is one."""
    falling = count(10**12, -1)
    monkeypatch.setattr(forms, "time_streams", lambda *_: SimpleNamespace(cycles=float(next(falling))))
    path = save(NETWORKS[name](), tmp_path / "net.onnx")
    made = program(path)
    assert any("moved in meanwhile" in decision.verdict for decision in made.decisions)
    assert verify_model(path, "gemmini", CompileOptions(O0()), VerifyOptions(samples=64)).failures == ()
