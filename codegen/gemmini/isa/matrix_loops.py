"""Loops of the accelerator's own over a product of matrices: what one does, and the instructions that ask for it.

    c [rows, columns] = a [rows, depth] b [depth, columns] + d     --loop_ws--> mvin, preload, compute, mvout

The accelerator unrolls a loop while the core goes on. Factors lie in halves of the scratchpad: the first one from the
start of a half on, the second one before the end of one; sums take halves of the accumulator in turn. Blocks of at most
64 bytes of a row are moved at once. The halves hold no more than fits in one of them: see `fits`.

Source: the generator's README, its unroller and its functional model, restated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from codegen.gemmini.isa.geometry import ArrayGeometry
from codegen.gemmini.isa.operations import Decoded

MOVED_BYTES = 64
"""Bytes of a row of the main memory that one instruction of a loop moves at most, if that is a block."""

Matrix = Literal["a", "b", "d", "c"]
SETTINGS = tuple(f"loop_ws_config_{what}" for what in ("bounds", "addrs_ab", "addrs_dc", "strides_ab", "strides_dc"))
LOOP = "loop_ws"


@dataclass(frozen=True, slots=True)
class MovedBlocks:
    """A matrix [rows, columns] as a loop moves it: in blocks of the array's height, `columns_at_once` wide."""

    rows: int
    columns: int
    columns_at_once: int


@dataclass(frozen=True, slots=True)
class MatrixLoop:
    """A loop. Addresses are those of the main memory, 0 for what is not moved: a factor is then in its half already,
    sums stay, nothing is added. Steps are elements from one row of a matrix to the next. `a_half` and `b_half` are 1
    or 2. With `accumulates` products are added to what the accumulator holds, with `full` sums leave as int32, with
    `low` what is added is int8; `turned_a` and `turned_b` say that a factor lies transposed."""

    rows: int
    columns: int
    depth: int
    a: int
    b: int
    d: int
    c: int
    a_step: int
    b_step: int
    d_step: int
    c_step: int
    a_half: int
    b_half: int
    accumulates: bool = False
    full: bool = False
    low: bool = False
    turned_a: bool = False
    turned_b: bool = False
    addition: bool = False
    """Whether both factors are added, by the accumulator, and not multiplied."""

    def anywhere(self) -> MatrixLoop:
        """A loop that moves as much, between other places."""
        a, b, c, d = (min(address, 1) for address in (self.a, self.b, self.c, self.d))
        return replace(self, a=a, b=b, c=c, d=d, a_half=1, b_half=1)

    def blocks(self, dim: int) -> tuple[int, int, int]:
        """Blocks of rows, columns and depth."""
        i, j, k = (-(-extent // dim) for extent in (self.rows, self.columns, self.depth))
        return i, j, k

    def fits(self, geometry: ArrayGeometry) -> bool:
        """Whether both factors fit in half of the scratchpad, and the sums in half of the accumulator."""
        dim = geometry.dim
        i, j, k = self.blocks(dim)
        return (i + j) * k * dim <= geometry.local_rows // 2 and i * j * dim <= geometry.accumulator_rows // 2

    def products(self, dim: int) -> int:
        """Products of blocks."""
        i, j, k = self.blocks(dim)
        return i * j * k

    def matrix(self, name: Matrix, dim: int) -> MovedBlocks:
        """How one of the matrices is moved."""
        at_once = dim * max(1, MOVED_BYTES // dim)
        match name:
            case "a" | "b" if self.addition:
                rows, columns = self.rows, self.columns
            case "a":
                rows, columns = (self.depth, self.rows) if self.turned_a else (self.rows, self.depth)
            case "b":
                rows, columns = (self.columns, self.depth) if self.turned_b else (self.depth, self.columns)
            case _:
                rows, columns = self.rows, self.columns
                if name == "d" and not self.low:
                    at_once = dim * max(1, MOVED_BYTES // (4 * dim))
                elif name == "c" and self.full:
                    at_once = dim
        return MovedBlocks(rows, columns, at_once)

    def item_bytes(self, name: Matrix) -> int:
        """Bytes of an element in the main memory."""
        return 4 if (name == "d" and not self.low) or (name == "c" and self.full) else 1

    def first_row(self, name: Literal["a", "b"], geometry: ArrayGeometry, place: int = 0) -> int:
        """The scratchpad's row where a factor begins; where no half is named, it is that of the unroller's place."""
        _, j, k = self.blocks(geometry.dim)
        half = geometry.local_rows // 2
        if name == "a":
            return ((self.a_half or place + 1) - 1) * half
        return (self.b_half or place + 1) * half - j * k * geometry.dim

    def operations(self, dim: int) -> tuple[tuple[str, dict[str, float]], ...]:
        """Mnemonics and fields, in the order in which they are issued: all is set anew for every loop, since the
        accelerator has two places, each with settings of its own."""
        i, j, k = self.blocks(dim)
        pads = {f"pad_{name}": -extent % dim for name, extent in zip("ijk", (self.rows, self.columns, self.depth),
                                                                     strict=True)}  # fmt: skip
        flags: dict[str, float] = {"accumulate": self.accumulates, "full_c": self.full, "low_d": self.low}
        halves = {"a_half": self.a_half, "b_half": self.b_half}
        turned = {"transpose_a": self.turned_a, "transpose_b": self.turned_b, "addition": self.addition}
        return (
            ("loop_ws_config_bounds", {"i": i, "j": j, "k": k, **pads}),
            ("loop_ws_config_addrs_ab", {"a": self.a, "b": self.b}),
            ("loop_ws_config_addrs_dc", {"d": self.d, "c": self.c}),
            ("loop_ws_config_strides_ab", {"a_stride": self.a_step, "b_stride": self.b_step}),
            ("loop_ws_config_strides_dc", {"d_stride": self.d_step, "c_stride": self.c_step}),
            ("loop_ws", {**flags, **halves, **turned}),
        )


def matrix_loop(operations: Sequence[Decoded], dim: int) -> MatrixLoop:
    """The loop that operations ask for: the converse of `MatrixLoop.operations`."""
    fields = {name: int(value) for each in operations for name, value in each.fields}
    rows, columns, depth = (fields[name] * dim - fields[f"pad_{name}"] for name in "ijk")
    a, b, d, c = (fields[name] for name in "abdc")
    a_step, b_step, d_step, c_step = (fields[f"{name}_stride"] for name in "abdc")
    flags = ("accumulate", "full_c", "low_d", "transpose_a", "transpose_b", "addition")
    accumulates, full, low, turned_a, turned_b, addition = (bool(fields[flag]) for flag in flags)
    return MatrixLoop(rows, columns, depth, a, b, d, c, a_step, b_step, d_step, c_step, fields["a_half"],
                      fields["b_half"], accumulates, full, low, turned_a, turned_b, addition)  # fmt: skip
