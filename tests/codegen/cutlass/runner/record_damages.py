"""Damages that a stranger may have done to `launches.bin`, and messages of the runner in C about them."""

from __future__ import annotations

import struct
from collections.abc import Callable

from codegen.cutlass.emission.binary_list import (
    DATA,
    HEADER,
    KERNEL,
    LAUNCH,
    MODULE,
    OUTSIDE,
    RELOCATION,
    TENSOR,
)

Damage = Callable[[bytes], bytes]

COUNTS = ("tensors", "data", "modules", "kernels", "launches", "relocations", "name_bytes", "parameter_bytes")
HEADER_FIELDS = {"version": (8, "I"), "header_bytes": (12, "I"), "file_bytes": (16, "Q"), "arena_bytes": (24, "Q"),
                 "architecture": (32, "8s"), "inputs": (40, "I"), "outputs": (44, "I"),
                 **{name: (48 + 4 * k, "I") for k, name in enumerate(COUNTS)}}  # fmt: skip
TABLES = {"tensors": TENSOR, "data": DATA, "modules": MODULE, "kernels": KERNEL, "launches": LAUNCH,
          "relocations": RELOCATION}  # fmt: skip
FIELDS = {
    "outside": {"tensor": (0, "I"), "name": (4, "I"), "dtype": (8, "I"), "rank": (12, "I"), "shape": (24, "2Q")},
    "tensors": {"offset": (0, "Q"), "bytes": (8, "Q")},
    "data": {"offset": (0, "Q"), "bytes": (8, "Q"), "file": (16, "I")},
    "modules": {"cubin": (0, "I")},
    "kernels": {"module": (0, "I"), "name": (4, "I"), "layer": (8, "I"), "shared_bytes": (12, "I")},
    "launches": {"layer": (0, "I"), "kernel": (4, "I"), "grid": (8, "3I"), "block": (20, "3I"),
                 "shared_bytes": (32, "I"), "parameters": (36, "I"), "parameter_bytes": (40, "I"),
                 "first_relocation": (44, "I"), "relocations": (48, "I")},
    "relocations": {"plus": (0, "Q"), "at": (8, "I"), "tensor": (12, "I")},
}  # fmt: skip


def start_of(data: bytes, table: str) -> int:
    """Offset of a table in the file."""
    counts: tuple[int, ...] = struct.unpack_from("<8I", data, 40)
    at = HEADER.size
    if table == "outside":
        return at
    at += (counts[0] + counts[1]) * OUTSIDE.size
    for (name, record), count in zip(TABLES.items(), counts[2:], strict=True):
        if name == table:
            return at
        at += count * record.size
    return at


def packed(data: bytes, at: int, kind: str, values: object) -> bytes:
    """The bytes with other values at an offset."""
    changed = bytearray(data)
    struct.pack_into(f"<{kind}", changed, at, *(values if isinstance(values, tuple) else (values,)))
    return bytes(changed)


def header(**fields: object) -> Damage:
    """Changes fields of the header."""

    def damage(data: bytes) -> bytes:
        for name, value in fields.items():
            data = packed(data, *HEADER_FIELDS[name], value)
        return data

    return damage


def first(table: str, **fields: object) -> Damage:
    """Changes fields of a table's first record."""

    def damage(data: bytes) -> bytes:
        for name, value in fields.items():
            offset, kind = FIELDS[table][name]
            data = packed(data, start_of(data, table) + offset, kind, value)
        return data

    return damage


def named(old: bytes, new: bytes) -> Damage:
    """Replaces a name by one of equal length."""
    assert len(old) == len(new)
    return lambda data: data.replace(old, new, 1)


def longer_name(data: bytes) -> bytes:
    """The first name with 5000 letters more, and a header that knows of them."""
    at = start_of(data, "names")
    (names,) = struct.unpack_from("<I", data, 72)
    grown = data[:at] + b"n" * 5000 + data[at:]
    return header(name_bytes=names + 5000, file_bytes=len(grown))(grown)


RECORDS: tuple[tuple[str, Damage, str], ...] = (
    ("nothing", lambda _: b"", "launches.bin: is not a list of launches"),
    ("part of the header", lambda data: data[:79], "launches.bin: is not a list of launches"),
    ("half of it", lambda data: data[: len(data) // 2], "launches.bin: needs "),
    ("cut off", lambda data: data[:-1], "launches.bin: needs "),
    ("more after its end", lambda data: data + b"\0", "launches.bin: needs "),
    ("another magic", lambda data: b"{" + data[1:], "launches.bin: is not a list of launches"),
    ("later version", header(version=2), "launches.bin: needs version 1, has 2 with a header of 80 bytes"),
    ("longer header", header(header_bytes=88), "launches.bin: needs version 1, has 1 with a header of 88 bytes"),
    ("another length", header(file_bytes=1 << 63), "launches.bin: needs "),
    ("arena of nothing", header(arena_bytes=0), "launches.bin: tensor 0 ends beyond the arena"),
    ("arena beyond all", header(arena_bytes=1 << 47), "launches.bin: needs an arena of at most 70368744177664 bytes"),
    ("more memory than there is", header(arena_bytes=1 << 45), "memory for values and constants: out of memory"),
    ("architecture", header(architecture=b"gfx90a"), "architecture gfx90a is not known"),
    ("architecture without an end", header(architecture=b"sm_80000"), "the architecture has no end"),
    ("architecture with a tail", header(architecture=b"sm_80x"), "architecture sm_80x is not known"),
    ("architecture with a sign", header(architecture=b"sm_+80"), "architecture sm_+80 is not known"),
    ("too many inputs", header(inputs=4096), "needs at most 4096 inputs and outputs"),
    ("inputs beyond 32 bits", header(inputs=(1 << 32) - 1), "needs at most 4096 inputs and outputs"),
    *((f"too many {name}", header(**{name: (1 << 32) - 1}), "launches.bin: needs ") for name in COUNTS),
    *((f"no {name}", header(**{name: 0}), "launches.bin: needs ") for name in COUNTS),
    ("tensor beyond the arena", first("tensors", offset=1 << 40), "tensor 0 ends beyond the arena"),
    ("tensor whose end wraps", first("tensors", bytes=(1 << 64) - 1), "tensor 0 ends beyond the arena"),
    ("input that is no tensor", first("outside", tensor=4), "input x/in: there is no tensor 4"),
    ("input without a name", first("outside", name=1 << 31), "input 0 has no name"),
    ("input with part of a name", first("outside", name=1), "input 0 has no name"),
    ("element type", first("outside", dtype=8), "input x/in: there is no element type 8"),
    ("rank of 17", first("outside", rank=17), "input x/in: needs at most 16 axes, has 17"),
    ("axis of nothing", first("outside", shape=(0, 40)), "input x/in: axis 0 has extent 0"),
    ("input larger than its range", first("outside", shape=(3, 41)), "input x/in is larger than its range"),
    ("input larger than all", first("outside", shape=(1 << 63, 1 << 63)), "input x/in is larger than its range"),
    ("file above", named(b"data/c.bin", b"../ac.bins"), "../ac.bins is not the name of a file in the folder"),
    ("file from the root", named(b"data/c.bin", b"/etc/passw"), "/etc/passw is not the name of a file"),
    ("file inside too far", named(b"data/c.bin", b"d/../c.bin"), "d/../c.bin is not the name of a file"),
    ("file two folders deep", named(b"data/c.bin", b"da/a/c.bin"), "da/a/c.bin is not the name of a file"),
    ("hidden file", named(b"data/c.bin", b"data/.cbin"), "data/.cbin is not the name of a file"),
    ("file that is not there", named(b"data/c.bin", b"data/d.bin"), "data/d.bin: No such file"),
    ("folder as a file", named(b"data/c.bin\0", b"data\0a.bin\0"), "data: is not a file"),
    ("file without a name", first("data", file=1 << 31), "launches.bin: a file has no name"),
    ("data beyond the arena", first("data", offset=1 << 40), "data/c.bin ends beyond the arena"),
    ("data of another size", first("data", bytes=200), "c.bin: needs 200 bytes, has 288"),
    ("machine code above", named(b"kernels/two.cubin", b"../nels/two.cubin"), "is not the name of a file"),
    ("module that is not there", first("kernels", module=1), "kernel scale_add: there is no module 1"),
    ("kernel with a slash", first("kernels", name=0), "kernel 0 has no proper name"),
    ("kernel without a layer", first("kernels", layer=1), "kernel scale_add has no layer"),
    ("kernel that is not there", named(b"scale_add", b"absent_ad"),
     "layer Scale/1: kernel absent_ad: named symbol not found"),
    ("shared memory beyond all", first("kernels", shared_bytes=1 << 21), "at most 1048576 bytes of shared memory"),
    ("shared memory beyond the device", first("kernels", shared_bytes=1 << 20),
     "layer Scale/1: kernel scale_add: 1048576 bytes of shared memory: invalid"),
    ("launch without a layer", first("launches", layer=1), "launch 0 has no layer"),
    ("launch of no kernel", first("launches", kernel=2), "launch of Scale/1: there is no kernel 2"),
    ("grid of nothing", first("launches", grid=(0, 1, 1)), "launch of Scale/1: no GPU has such a grid or block"),
    ("grid too tall", first("launches", grid=(4, 1, 65536)), "launch of Scale/1: no GPU has such a grid or block"),
    ("block too large", first("launches", block=(32, 33, 1)), "launch of Scale/1: no GPU has such a grid or block"),
    ("more shared memory than asked for", first("launches", shared_bytes=8), "more shared memory than its kernel"),
    ("parameters beyond the end", first("launches", parameters=1 << 31), "parameters that are too long or not there"),
    ("too many parameters", first("launches", parameter_bytes=4097), "parameters that are too long or not there"),
    ("relocations of another launch", first("launches", first_relocation=1), "relocations that are not its own"),
    ("relocations beyond the last one", first("launches", relocations=6), "relocations that are not its own"),
    ("relocation of no tensor", first("relocations", tensor=4), "launch of Scale/1: there is no tensor 4"),
    ("address beyond its tensor", first("relocations", plus=241), "an address beyond its tensor"),
    ("relocation beyond the parameters", first("relocations", at=25), "an address beyond the parameters"),
    ("relocation far beyond", first("relocations", at=(1 << 32) - 1), "an address beyond the parameters"),
    ("name with a control character", named(b"Scale/1", b"Scale\n1"), "a name that is empty, too long, or"),
    ("empty name", named(b"Scale/1\0", b"Scale/\0\0"), "a name that is empty, too long, or"),
    ("name without an end", named(b"Reverse\0", b"Reverse1"), "launches.bin: "),
    ("long name", longer_name, "a name that is empty, too long, or"),
)  # fmt: skip
"""Damages by name, and what a message about each contains."""
