"""Control and status registers: those that exist, the bits that hold a write, and the values of the computed ones.

Rules of NeuralScale NPU v1: machine mode only; NPU CSRs hold 32 bits as written, `ncp_busy` reads 0, a write to `tid`
is ignored; an absent CSR or a write to a read-only one is an illegal instruction (cause 2).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from codegen.neuralscale.simulator.core.hart import FS_DIRTY, MASK, MSTATUS, VECTOR_BYTES, Hart
from codegen.neuralscale.simulator.memory.faults import Trap

ILLEGAL_INSTRUCTION: Final = 2

FFLAGS, FRM, FCSR = 1, 2, 3
MTVEC, MEPC, MCAUSE, MTVAL = 0x305, 0x341, 0x342, 0x343

SHAPE_S1, STRIDE_D, STRIDE_S = 0x400, 0x402, 0x403
M_SHAPE_S1, M_SHAPE_S2, M_STRIDE_D, M_STRIDE_S = 0x404, 0x405, 0x406, 0x407
CONV_FM_IN, CONV_DEPTH_IN, CONV_FM_OUT, CONV_DEPTH_OUT = 0x408, 0x409, 0x40A, 0x40B
CONV_S_KERNEL, CONV_KERNEL, CONV_PADDING = 0x40C, 0x40D, 0x40E
M_DEQUANT_COEFF, CONV_DEQUANT_COEFF = 0x410, 0x411
MTE_COREMAP, MTE_ICDEST, MTE_SHAPE, MTE_STRIDE_LLB = 0x420, 0x421, 0x422, 0x423

_MISA: Final = 0x4020_1125
_MIDELEG, _MIE = 0x303, 0x304
_TID: Final = 0x424
_MHARTID: Final = 0xF14
_MSTATUS_WRITABLE: Final = 0x007E_60AA | 0x0002_0000  # SIE MIE SPIE MPIE FS MPRV SUM MXR TVM TW TSR; MPP stays M
_INTERRUPTS: Final = 0xAAA

_PLAIN: Final = (*range(0x400, 0x40F), 0x410, 0x411, *range(0x420, 0x424), 0x425, 0x426, 0x340)

# Storage with a mask of the bits that hold a write; 0 = reads its reset value.
_STORED: Final[dict[int, int]] = {
    **dict.fromkeys(_PLAIN, MASK),
    0x008: 0, 0x41F: 0, MTVEC: MASK & ~2, MEPC: MASK & ~1, MCAUSE: MASK, MTVAL: MASK, 0x302: 0xB109, 0x303: 0x222,
    0x304: _INTERRUPTS, 0x306: MASK, 0x344: 0x22, 0x105: MASK & ~3, 0x106: MASK, 0x140: MASK,
    0x141: MASK & ~1, 0x142: MASK, 0x143: MASK, 0x144: 0, 0x180: 0x803F_FFFF, 0x7C6: MASK, 0x7C7: MASK, 0x7C8: MASK,
    0x7CA: 0, 0x7CB: 0, 0x7CC: 0, 0x7CD: 0, 0xFC0: 0, 0xFC1: 0, 0xF11: 0, 0xF12: 0, 0xF13: 0,
    **dict.fromkeys(range(0x3A0, 0x3A4), MASK), **dict.fromkeys(range(0x3B0, 0x3C0), MASK),
    **dict.fromkeys((*range(0xB03, 0xB20), *range(0xB83, 0xBA0), *range(0x323, 0x340)), 0),
    **dict.fromkeys((*range(0xC03, 0xC20), *range(0xC83, 0xCA0)), 0),
    0x7A0: 0, 0x7A1: 0, 0x7A2: MASK, 0x7A3: 0, 0x7B0: 0, 0x7B1: MASK & ~1, 0x7B2: MASK,
}  # fmt: skip
_RESET: Final = {0xF12: 5, 0x7CD: 1, 0x3A0: 0x1F, 0x7A1: 0x2000_0000, 0x7B0: 0x4000_0000, 0x3B0: MASK}
_COUNTERS_LOW: Final = (0xB00, 0xB02, 0xC00, 0xC02)
_COUNTERS_HIGH: Final = (0xB80, 0xB82, 0xC80, 0xC82)


def plain_mask() -> NDArray[np.uint8]:
    """1 for the CSRs that the compiled loop may read and write as storage."""
    mask = np.zeros(4096, np.uint8)
    mask[list(_PLAIN)] = 1
    return mask


def reset(hart: Hart) -> None:
    """Reset values other than zero."""
    for number, value in _RESET.items():
        hart.csr[number] = value


def read(hart: Hart, number: int) -> int:
    """Read a CSR. Raises `Trap` when it does not exist or its unit is off."""
    match number:
        case 1 | 2 | 3:
            if not hart.fp_enabled:
                raise Trap(ILLEGAL_INSTRUCTION)
            flags, mode = int(hart.csr[FFLAGS]), int(hart.csr[FRM])
            return {FFLAGS: flags, FRM: mode, FCSR: mode << 5 | flags}[number]
        case 0x301:
            return _MISA
        case 0x424 | 0xF14:
            return hart.hart_id
        case 0x104:
            return int(hart.csr[_MIE]) & int(hart.csr[_MIDELEG])
        case 0xC20:
            return hart.vl
        case 0xC21:
            return hart.vtype
        case 0xC22:
            return VECTOR_BYTES
        case 0x300:
            return int(hart.csr[MSTATUS])
        case 0x100:
            return int(hart.csr[MSTATUS]) & 0x800D_E122
    if number in _COUNTERS_LOW:
        return (hart.retired + hart.counter_offset) & MASK
    if number in _COUNTERS_HIGH:
        return (hart.retired + hart.counter_offset) >> 32 & MASK
    if number in _STORED:
        return int(hart.csr[number])
    raise Trap(ILLEGAL_INSTRUCTION)


def write(hart: Hart, number: int, value: int) -> None:
    """Write a CSR that `read` accepted. Raises `Trap` for read-only ones."""
    if number >> 10 == 3:
        raise Trap(ILLEGAL_INSTRUCTION)
    if number in (FFLAGS, FRM, FCSR):
        if number != FRM:
            hart.csr[FFLAGS] = value & 31
        if number != FFLAGS:
            hart.csr[FRM] = (value >> 5 if number == FCSR else value) & 7
        hart.csr[MSTATUS] |= FS_DIRTY
    elif number in (MSTATUS, 0x100):
        mask = _MSTATUS_WRITABLE if number == MSTATUS else 0x000C_6022
        status = (int(hart.csr[MSTATUS]) & ~mask | value & mask) & 0x7FFF_FFFF
        hart.csr[MSTATUS] = status | (0x8000_0000 if status & 0x6000 == 0x6000 else 0)
    elif number == 0x104:
        delegated = int(hart.csr[_MIDELEG])
        hart.csr[_MIE] = int(hart.csr[_MIE]) & ~delegated | value & delegated
    elif number in _COUNTERS_LOW or number in _COUNTERS_HIGH:
        now = hart.retired + hart.counter_offset
        now = now & ~MASK | value if number in _COUNTERS_LOW else value << 32 | now & MASK
        hart.counter_offset = now - 1 - hart.retired  # this instruction still counts
    elif number in _STORED:
        mask = _STORED[number]
        hart.csr[number] = int(hart.csr[number]) & ~mask | value & mask
