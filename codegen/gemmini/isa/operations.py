"""Instructions of the accelerator: one table of operations, with the fields that they read in two 64-bit operands.

    operands("mvin", dram=0x80100000, row=0, columns=16, rows=16)  -->  (rs1, rs2)  --decoded-->  the same fields

The machine word names only two registers of the core and the function (`codegen.gemmini.isa.table`); what is to be done
stands in the values of these registers. Operations of one function differ by fixed bits of the first operand.

Source: the ISA chapter of the generator's README, its decoder and its functional model, restated.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from codegen.riscv.codec import IsaError

Kind = Literal["number", "float32"]

GARBAGE = 0xFFFFFFFF
"""Local address of no rows: zeros where it is read, and nothing is written."""

ACCUMULATOR, ACCUMULATE, FULL_WIDTH = 1 << 31, 1 << 30, 1 << 29
"""Bits of a local address: a row of the accumulator; add to it; read it as int32."""


@dataclass(frozen=True, slots=True)
class Bits:
    """A field of an operand: `width` bits from `low` on. A float32 is given and shown as a number."""

    name: str
    low: int
    width: int
    kind: Kind = "number"

    @property
    def mask(self) -> int:
        return ((1 << self.width) - 1) << self.low


@dataclass(frozen=True, slots=True)
class RoccOperation:
    """One operation: its function, the fields of its two operands, and the bits of the first one that are `fixed` to
    the value `match`."""

    mnemonic: str
    function: str
    first: tuple[Bits, ...]
    second: tuple[Bits, ...]
    meaning: str
    match: int = 0
    fixed: int = 0

    def __post_init__(self) -> None:
        for bits, taken in ((self.first, self.fixed), (self.second, 0)):
            for field in bits:
                if field.mask & taken or field.low + field.width > 64:
                    raise ValueError(f"{self.mnemonic}: field {field.name} lies over other bits or outside the operand")
                taken |= field.mask


FUNCTIONS: Mapping[str, int] = {
    "config": 0,
    "mvin2": 1,
    "mvin": 2,
    "mvout": 3,
    "compute_preloaded": 4,
    "compute_accumulated": 5,
    "preload": 6,
    "flush": 7,
    "loop_ws": 8,
    "loop_ws_config_bounds": 9,
    "loop_ws_config_addrs_ab": 10,
    "loop_ws_config_addrs_dc": 11,
    "loop_ws_config_strides_ab": 12,
    "loop_ws_config_strides_dc": 13,
    "mvin3": 14,
    "loop_conv_ws": 15,
    "loop_conv_ws_config_1": 16,
    "loop_conv_ws_config_2": 17,
    "loop_conv_ws_config_3": 18,
    "loop_conv_ws_config_4": 19,
    "loop_conv_ws_config_5": 20,
    "loop_conv_ws_config_6": 21,
}
"""The function number of the machine word, by name."""


def _local(prefix: str = "") -> tuple[Bits, ...]:
    """A local address with the extent of the block that begins there."""
    return (Bits(f"{prefix}row", 0, 32), Bits(f"{prefix}columns", 32, 16), Bits(f"{prefix}rows", 48, 16))


def _words(*names: str) -> tuple[Bits, ...]:
    """Fields of 16 bits, from the lowest on; an empty name leaves 16 bits out."""
    return tuple(Bits(name, 16 * place, 16) for place, name in enumerate(names) if name)


def _address(name: str) -> tuple[Bits, ...]:
    return (Bits(name, 0, 64),)


def _alone(mnemonic: str, first: tuple[Bits, ...], second: tuple[Bits, ...], meaning: str) -> RoccOperation:
    """The only operation of the function of this name."""
    return RoccOperation(mnemonic, mnemonic, first, second, meaning)


def _config(mnemonic: str, kind: int, first: tuple[Bits, ...], second: tuple[Bits, ...], meaning: str) -> RoccOperation:
    return RoccOperation(mnemonic, "config", first, second, meaning, match=kind, fixed=0b11)


_MVIN = "move rows from the main memory to local rows, in blocks of the array's width, scaled"

OPERATIONS: tuple[RoccOperation, ...] = (
    _config(
        "config_ex",
        0,
        (
            Bits("weight_stationary", 2, 1),
            Bits("activation", 3, 2),
            Bits("only_strides", 7, 1),
            Bits("transpose_a", 8, 1),
            Bits("transpose_b", 9, 1),
            Bits("a_stride", 16, 16),
            Bits("scale", 32, 32, "float32"),
        ),
        (Bits("shift", 0, 32), Bits("c_stride", 48, 16)),
        "set what computing does: dataflow, activation, transposes, rows from one row of A and of C to the next, "
        "the scale of sums that are a left factor",
    ),
    _config(
        "config_ld",
        1,
        (
            Bits("shrunk", 2, 1),
            Bits("state", 3, 2),
            Bits("pixels_per_row", 8, 8),
            Bits("block_rows", 16, 16),
            Bits("scale", 32, 32, "float32"),
        ),
        _address("stride"),
        "set one of three states of moving in: bytes from row to row, rows from block to block, the scale",
    ),
    _config(
        "config_st",
        2,
        (
            Bits("activation", 2, 2),
            Bits("pool_stride", 4, 2),
            Bits("pool_size", 6, 2),
            Bits("pool_top", 8, 2),
            Bits("pool_left", 10, 2),
            Bits("pool_width", 24, 8),
            Bits("pool_out_rows", 32, 8),
            Bits("pool_out_columns", 40, 8),
            Bits("pool_in_rows", 48, 8),
            Bits("pool_in_columns", 56, 8),
        ),
        (Bits("stride", 0, 32), Bits("scale", 32, 32, "float32")),
        "set what moving out does: bytes from row to row, the scale, the activation, maxima over windows",
    ),
    _config(
        "config_norm",
        3,
        (
            Bits("statistics", 8, 8),
            Bits("activation_high", 16, 1),
            Bits("only_statistics", 17, 1),
            Bits("constant_kind", 18, 1),
            Bits("constant", 32, 32),
        ),
        (Bits("b", 0, 32), Bits("c", 32, 32)),
        "set constants of normalising and of the functions made of integers",
    ),
    _alone("mvin", _address("dram"), _local(), _MVIN + " by state 0"),
    _alone("mvin2", _address("dram"), _local(), _MVIN + " by state 1"),
    _alone("mvin3", _address("dram"), _local(), _MVIN + " by state 2"),
    _alone("mvout", _address("dram"), _local(), "move local rows to the main memory; sums are scaled and bounded"),
    _alone("preload", _local("b_"), _local("c_"), "name the block to be put into the array, and that of the results"),
    _alone("compute_preloaded", _local("a_"), _local("d_"), "fill the array as preloaded, multiply and add"),
    _alone("compute_accumulated", _local("a_"), _local("d_"), "multiply and add with what the array holds"),
    _alone("flush", (Bits("skip", 0, 1),), (), "forget translations of addresses"),
    _alone(
        "loop_ws_config_bounds",
        _words("pad_i", "pad_j", "pad_k"),
        _words("i", "j", "k"),
        "set the blocks of a product, and by how much the last ones are smaller",
    ),
    _alone("loop_ws_config_addrs_ab", _address("a"), _address("b"), "set where the factors lie"),
    _alone("loop_ws_config_addrs_dc", _address("d"), _address("c"), "set where what is added and the result lie"),
    _alone("loop_ws_config_strides_ab", _address("a_stride"), _address("b_stride"), "set strides of the factors"),
    _alone("loop_ws_config_strides_dc", _address("d_stride"), _address("c_stride"), "set strides of the others"),
    _alone(
        "loop_ws",
        (
            Bits("accumulate", 0, 1),
            Bits("full_c", 1, 1),
            Bits("low_d", 2, 1),
            Bits("activation", 8, 3),
            Bits("b_half", 16, 2),
            Bits("a_half", 18, 2),
        ),
        (Bits("transpose_a", 0, 1), Bits("transpose_b", 1, 1), Bits("addition", 2, 1)),
        "carry out a whole product of blocks",
    ),
    _alone(
        "loop_conv_ws_config_1",
        _words("batch", "in_rows", "in_channels", "out_channels"),
        (*_words("out_rows", "pool_out_rows", "out_columns"), Bits("stride", 48, 8), Bits("padding", 56, 8)),
        "set extents of a convolution",
    ),
    _alone(
        "loop_conv_ws_config_2",
        (
            Bits("pool_padding", 0, 8),
            Bits("pool_stride", 8, 8),
            Bits("pool_size", 16, 16),
            Bits("pool_out_columns", 32, 16),
            Bits("kernel", 48, 16),
        ),
        _words("part_channels", "part_columns", "part_rows", "part_images"),
        "set its pool, and the part of it that is computed",
    ),
    _alone(
        "loop_conv_ws_config_3",
        _words("left", "kernel_channels", "kernel_columns", "kernel_rows"),
        (
            Bits("in_columns", 0, 16),
            Bits("pool_left", 16, 8),
            Bits("bottom", 24, 8),
            Bits("top", 32, 16),
            Bits("right", 48, 16),
        ),
        "set the part of the kernel, and the padding around the part",
    ),
    _alone(
        "loop_conv_ws_config_4",
        (
            Bits("dilation", 0, 8),
            Bits("pool_bottom", 10, 8),
            Bits("pool_top", 21, 8),
            Bits("pool_right", 32, 16),
            Bits("rows", 48, 16),
        ),
        _words("columns", "out_stride", "weight_stride", "in_stride"),
        "set dilation, padding of the pool, and strides",
    ),
    _alone("loop_conv_ws_config_5", _address("weights"), _address("output"), "set where weights and result lie"),
    _alone("loop_conv_ws_config_6", _address("bias"), _address("input"), "set where bias and input lie"),
    _alone(
        "loop_conv_ws",
        (
            Bits("no_bias", 0, 1),
            Bits("rotated", 1, 1),
            Bits("output_1203", 2, 1),
            Bits("weights_1203", 3, 1),
            Bits("weights_0132", 4, 1),
            Bits("input_3120", 5, 1),
            Bits("depthwise", 6, 1),
            Bits("pixels_per_row", 8, 8),
            Bits("b_half", 16, 2),
            Bits("a_half", 18, 2),
        ),
        (Bits("no_pool", 0, 1), Bits("downsample", 1, 1), Bits("input_dilated", 2, 1), Bits("activation", 3, 2)),
        "carry out a whole convolution",
    ),
)
"""Every operation of the accelerator."""

_BY_NAME: Mapping[str, RoccOperation] = {operation.mnemonic: operation for operation in OPERATIONS}


@dataclass(frozen=True, slots=True)
class Decoded:
    """An operation with the values of its fields, in the order of the table."""

    operation: RoccOperation
    fields: tuple[tuple[str, int | float], ...]

    def __str__(self) -> str:
        """`mvin dram=0x80100000 row=0x0 columns=16 rows=16`; fields that are zero are left out."""
        shown = (f"{name}={_shown(name, value)}" for name, value in self.fields if value)
        return " ".join((self.operation.mnemonic, *shown))


def operation(mnemonic: str) -> RoccOperation:
    """The operation of that name. Raises IsaError."""
    found = _BY_NAME.get(mnemonic)
    if found is None:
        raise IsaError(f"no operation is called {mnemonic!r}")
    return found


def operands(mnemonic: str, **fields: float) -> tuple[int, int]:
    """The two operands of an operation; fields that are not given are zero. Raises IsaError for fields that it does not
    have and for values that they cannot hold."""
    found = operation(mnemonic)
    names = {bits.name for bits in (*found.first, *found.second)}
    if unknown := sorted(set(fields) - names):
        raise IsaError(f"{mnemonic} has the fields {', '.join(sorted(names))}, not {unknown[0]}")
    first, second = (sum(_placed(mnemonic, bits, fields.get(bits.name, 0)) for bits in part)
                     for part in (found.first, found.second))  # fmt: skip
    return first | found.match, second


def decoded(function: int, first: int, second: int) -> Decoded | None:
    """The operation that a function does with these operands; None where there is none. Bits outside of fields are
    ignored, as the hardware does."""
    for found, ones, others in _BY_FUNCTION.get(function, ()):
        if first & found.fixed == found.match:
            fields = [(name, first >> low & mask) for name, low, mask in ones]
            fields += [(name, second >> low & mask) for name, low, mask in others]
            if found.mnemonic not in _WITH_FLOATS:
                return Decoded(found, tuple(fields))
            kinds = [bits.kind for bits in (*found.first, *found.second)]
            return Decoded(found, tuple((name, _value(kind, number)) for kind, (name, number) in
                                        zip(kinds, fields, strict=True)))  # fmt: skip
    return None


def _shifts(bits: tuple[Bits, ...]) -> tuple[tuple[str, int, int], ...]:
    """Name, lowest bit and mask of each field, the mask as it is from bit 0 on."""
    return tuple((each.name, each.low, (1 << each.width) - 1) for each in bits)


_BY_FUNCTION = {
    number: [(each, _shifts(each.first), _shifts(each.second)) for each in OPERATIONS if each.function == name]
    for name, number in FUNCTIONS.items()
}
_WITH_FLOATS = {
    each.mnemonic for each in OPERATIONS if any(bits.kind == "float32" for bits in (*each.first, *each.second))
}


def _placed(mnemonic: str, bits: Bits, value: float) -> int:
    number = int.from_bytes(struct.pack("<f", value), "little") if bits.kind == "float32" else int(value)
    if (bits.kind == "number" and number != value) or not 0 <= number < 1 << bits.width:
        raise IsaError(f"{mnemonic}: {bits.name} is {value}, which is no number of {bits.width} bits")
    return number << bits.low


def _value(kind: Kind, number: int) -> int | float:
    if kind == "float32":
        value: float = struct.unpack("<f", number.to_bytes(4, "little"))[0]
        return value
    return number


def _shown(name: str, value: int | float) -> str:
    if isinstance(value, float):
        return repr(value)
    return f"{value:#x}" if value > 0xFFFF or name in ("dram", "row") else str(value)
