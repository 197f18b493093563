"""Attention as one kernel: bits as emulated at every position, values as float64's, equal bits however it is cut."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest

from hw_models.chip import Chip
from tests.chip_runs import compile_graph, small_chip
from tests.movement_graphs import MovementBuilder

Values = npt.NDArray[np.float64]
Halves = npt.NDArray[np.float16]


@dataclass(frozen=True)
class Case:
    """Items, rows, keys; heads of q, of k and v; elements of a head of k and of v; the mask extents; keys that come in
    a first part of their own; and which operands have an axis of heads, of the first part too, if any."""

    items: int
    rows: int
    keys: int
    heads: int
    groups: int
    size: int
    width: int
    mask: tuple[int, int, int] | None = None
    past: int = 0
    apart: str = ""

    def operands(self, seed: int) -> dict[str, Halves]:
        random = np.random.default_rng(seed)
        shapes = {
            "q": (self.items, self.rows, self.heads * self.size),
            "k": (self.items, self.keys, self.groups * self.size),
            "v": (self.items, self.keys, self.groups * self.width),
        }
        result = {name: random.normal(0, 1, shape).astype(np.float16) for name, shape in shapes.items()}
        if self.mask is not None:
            hidden = random.random((*self.mask, self.keys)) < 0.3
            hidden[..., 0] = False
            result["m"] = np.where(hidden, np.float16(-np.inf), random.normal(0, 1, hidden.shape).astype(np.float16))
        return result

    def inputs(self, operands: dict[str, Halves]) -> dict[str, Halves]:
        """The operands as the operator takes them: q, then k, v and mask of each part."""
        result = {"q": self._as_given(operands["q"], "q", self.heads)}
        for part, keys in (("past", slice(0, self.past)), ("", slice(self.past, self.keys)))[not self.past :]:
            for name in "kv":
                result[part + name] = self._as_given(operands[name][:, keys], name, self.groups)
            if self.mask is not None:
                result[part + "m"] = operands["m"][..., keys]
        return {name: np.ascontiguousarray(array) for name, array in result.items()}

    def _as_given(self, operand: Halves, name: str, heads: int) -> Halves:
        if name not in self.apart:
            return operand
        return operand.reshape(*operand.shape[:2], heads, -1).transpose(0, 2, 1, 3)


CASES = {
    "plain": Case(2, 9, 11, 3, 3, 8, 8),
    "one head, one row": Case(1, 1, 5, 1, 1, 4, 6),
    "mask by item": Case(3, 6, 13, 2, 2, 8, 8, (3, 1, 1)),
    "mask by row": Case(2, 13, 13, 2, 2, 8, 8, (1, 1, 13)),
    "mask by head": Case(2, 5, 7, 4, 4, 8, 4, (2, 4, 5)),
    "shared heads": Case(2, 5, 17, 6, 2, 8, 12, (1, 1, 5)),
    "one head of k and v": Case(1, 5, 17, 4, 1, 16, 8),
    "more keys than are summed as they are": Case(1, 3, 300, 2, 1, 8, 8),
    "several runs": Case(1, 4, 1025, 2, 2, 8, 4, (1, 1, 1)),
    "many runs": Case(1, 2, 4099, 1, 1, 4, 4),
    "a head of BERT": Case(1, 128, 128, 2, 2, 64, 64, (1, 1, 1)),
    "blocks of rows": Case(1, 150, 577, 2, 2, 64, 64),
    "blocks under a mask by row": Case(1, 150, 600, 2, 1, 64, 64, (1, 1, 150)),
    "blocks in several runs": Case(1, 150, 700, 2, 1, 64, 64, (1, 1, 150)),
    "wide heads": Case(1, 3, 257, 2, 1, 256, 256),
    "heads apart": Case(2, 5, 17, 6, 2, 8, 12, (1, 1, 5), apart="qkv"),
    "v apart": Case(2, 5, 17, 4, 4, 8, 8, apart="v"),
    "two parts": Case(2, 5, 17, 6, 2, 8, 12, (2, 1, 5), past=12, apart="kv"),
    "two parts without a mask": Case(1, 3, 9, 2, 2, 8, 4, past=1),
    "a cache of several runs": Case(1, 70, 1100, 4, 2, 64, 64, (1, 1, 70), past=1000, apart="qkv"),
}


def meaning(case: Case, operands: dict[str, Halves], scale: float) -> Values:
    q, k, v = (operands[name].astype(np.float64) for name in "qkv")
    q = q.reshape(case.items, case.rows, case.heads, -1).transpose(0, 2, 1, 3)
    k, v = (x.reshape(case.items, case.keys, case.groups, -1).transpose(0, 2, 1, 3) for x in (k, v))
    k, v = (np.repeat(x, case.heads // case.groups, 1) for x in (k, v))
    scores = q @ k.swapaxes(2, 3) * scale
    scores = scores + operands["m"].astype(np.float64) if "m" in operands else scores
    powers = np.exp(scores - scores.max(3, keepdims=True))
    taken = powers / powers.sum(3, keepdims=True) @ v
    return np.asarray(taken.transpose(0, 2, 1, 3).reshape(case.items, case.rows, -1))


def stored_attention(
    case: Case, operands: dict[str, Halves], scale: float, chip: Chip | None = None
) -> npt.NDArray[np.uint16]:
    """What the machine code stores, after it was compared with the emulation bit for bit."""
    builder = MovementBuilder("attention")
    inputs = case.inputs(operands)
    names = [builder.input(name, *array.shape) for name, array in inputs.items()]
    out = builder.attend(*names, heads=case.heads, groups=case.groups, scale=scale, count=1 + bool(case.past))
    compiled = compile_graph(*builder.build(out), chip)
    stored = compiled.run({name: array.view(np.uint16) for name, array in inputs.items()})
    for got, wanted in compiled.expected(stored).values():
        np.testing.assert_array_equal(got, wanted)
    return stored[out]


@pytest.mark.parametrize("name", CASES)
def test_attention_agrees_with_float64(name: str) -> None:
    case = CASES[name]
    operands, scale = case.operands(1), case.size**-0.5
    got = stored_attention(case, operands, scale).view(np.float16)
    np.testing.assert_allclose(got, meaning(case, operands, scale), rtol=1.5e-2, atol=1.5e-2)


def test_keys_are_turned_once_for_all_blocks_of_rows() -> None:
    """Two blocks of 64 and 86 rows, whose scores have two places; 577 keys of 64 elements are one run."""
    case = CASES["blocks of rows"]
    builder = MovementBuilder("blocks")
    shapes = {name: array.shape for name, array in case.operands(0).items()}
    names = [builder.input(name, *shape) for name, shape in shapes.items()]
    out = builder.attend(*names, heads=case.heads, groups=case.groups, scale=0.125)
    compiled = compile_graph(*builder.build(out), small_chip(1))
    matrix = [instr for instr in compiled.program.streams[0].instrs if instr.engine == "matrix"]
    assert [instr.opcode for instr in matrix].count("metr.m") == case.heads
    scores = [instr.writes[0].offset_bytes for instr in matrix if instr.writes[0].row_bytes % (577 * 2) == 0]
    assert len(set(scores)) >= 2


@pytest.mark.parametrize("name", ["plain", "mask by head", "shared heads", "several runs", "heads apart", "two parts"])
def test_small_memories_store_the_same_bits(name: str) -> None:
    case = CASES[name]
    operands = case.operands(2)
    tiny = small_chip(cores=3, data_bytes=1 << 16, weights_bytes=1 << 14, im_bytes=1 << 14, llb_bytes=1 << 17)
    np.testing.assert_array_equal(
        stored_attention(case, operands, 0.3), stored_attention(case, operands, 0.3, chip=tiny)
    )


def test_values_of_many_equal_keys_stay_in_the_range() -> None:
    """Sums of 1,000 times 400 before the division would not."""
    case = Case(1, 2, 1000, 1, 1, 8, 8)
    operands = case.operands(3)
    operands["k"][:] = 0
    operands["v"][:] = 400 + operands["v"]
    got = stored_attention(case, operands, 1.0).view(np.float16)
    np.testing.assert_allclose(got, meaning(case, operands, 1.0), rtol=1.5e-2)


def test_a_run_that_a_row_does_not_see_adds_nothing() -> None:
    case = Case(1, 4, 20, 2, 1, 8, 8, (1, 1, 4), past=12)
    operands = case.operands(5)
    operands["m"][0, 0, 1, :12] = -np.inf
    operands["m"][0, 0, 2, 12:] = -np.inf
    got = stored_attention(case, operands, 0.5).view(np.float16)
    np.testing.assert_allclose(got, meaning(case, operands, 0.5), rtol=1.5e-2, atol=1.5e-2)


@pytest.mark.parametrize("past", [0, 2])
def test_rows_that_see_nothing_are_not_numbers(past: int) -> None:
    case = Case(1, 4, 6, 1, 1, 4, 4, (1, 1, 4), past=past)
    operands = case.operands(4)
    operands["m"][:] = 0
    operands["m"][0, 0, 2] = -np.inf
    got = stored_attention(case, operands, 0.5).view(np.float16)
    assert np.isnan(got[0, 2]).all()
    assert np.isfinite(got[0, [0, 1, 3]]).all()
