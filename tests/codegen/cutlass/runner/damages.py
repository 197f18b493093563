"""Damages that a stranger may have done to a folder, and messages of the runners in Python and in C about them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

Change = Callable[[Any], object]


def first(entry: str, key: str, value: object) -> Change:
    """Sets a key of the first of a list's items."""
    return lambda value_of: value_of[entry][0].__setitem__(key, value)


def moved(**values: object) -> Change:
    """Changes the first relocation."""
    return lambda value_of: value_of["launches"][0]["relocations"][0].update(values)


def with_section_size(data: bytes, section: int, size_bytes: int) -> bytes:
    """ELF with another size of one section."""
    (sections,) = struct.unpack_from("<Q", data, 40)
    changed = bytearray(data)
    struct.pack_into("<Q", changed, sections + 64 * section + 32, size_bytes)
    return bytes(changed)


CHANGES: tuple[tuple[str, Change, str], ...] = (
    (
        "later format",
        lambda v: v.update(format="dsa-sched-launches/2"),
        "format needs dsa-sched-launches/1, has dsa-sched-launches/2",
    ),
    ("unknown key", lambda v: v.update(more=1), "the list needs the keys"),
    ("missing key", lambda v: v.pop("data"), "the list needs the keys"),
    (
        "unknown key of a relocation",
        moved(kind="descriptor"),
        r"relocations\[0\] needs the keys at, tensor",
    ),
    ("architecture", lambda v: v.update(architecture="compute_80"), "the list.architecture needs a name"),
    ("architecture with a tail", lambda v: v.update(architecture="sm_80x"), "the list.architecture needs a name"),
    ("architecture with a sign", lambda v: v.update(architecture="sm_+80"), "the list.architecture needs a name"),
    ("arena of nothing", lambda v: v.update(arena_bytes=0), "x/in needs an end inside the arena of 0 bytes"),
    ("arena beyond all", lambda v: v.update(arena_bytes=1 << 47), "arena_bytes needs a whole number"),
    ("more memory than there is", lambda v: v.update(arena_bytes=1 << 45), "bytes of global memory"),
    ("number as text", lambda v: v.update(arena_bytes="5"), "arena_bytes needs a whole number"),
    ("number with a fraction", lambda v: v.update(arena_bytes=1.5), "arena_bytes needs a whole number"),
    ("negative number", first("tensors", "offset", -1), r"tensors\[0\].offset needs a whole number"),
    ("truth as a number", first("tensors", "offset", True), r"tensors\[0\].offset needs a whole number"),
    ("tensor beyond the arena", first("tensors", "offset", 1 << 40), "inside the arena"),
    ("input larger than its range", first("tensors", "shape", [1 << 40, 1 << 40]), "input x/in needs"),
    ("axis of nothing", first("tensors", "shape", [0, 40]), r"tensors\[0\].shape\[0\] needs a whole number from 1"),
    ("rank of 17", first("tensors", "shape", [1] * 17), r"tensors\[0\].shape needs a list of 0 to 16"),
    ("layout of another rank", first("tensors", "layout", [0]), "input x/in needs a layout of the shape's rank"),
    (
        "too many inputs",
        lambda v: v["tensors"].extend([{**v["tensors"][0], "name": f"x{k}"} for k in range(4095)]),
        "tensors needs at most 4096 inputs and outputs, has 4097",
    ),
    ("role", first("tensors", "role", "inputs"), r"tensors\[0\].role needs one of input"),
    ("type", first("tensors", "dtype", "bfloat16"), r"tensors\[0\].dtype needs one of float16"),
    ("name with a line end", first("tensors", "name", "a\nb"), r"tensors\[0\].name needs a name"),
    ("name with a control character", first("tensors", "name", "a\x01b"), r"tensors\[0\].name needs a name"),
    ("empty name", first("tensors", "name", ""), r"tensors\[0\].name needs a name"),
    ("long name", first("tensors", "name", "n" * 5000), r"tensors\[0\].name needs a name"),
    ("file above", first("data", "file", "../c.bin"), r"data\[0\].file needs a name"),
    ("file from the root", first("data", "file", "/etc/passwd"), r"data\[0\].file needs a name"),
    ("file inside too far", first("data", "file", "data/../../c.bin"), r"data\[0\].file needs a name"),
    ("file two folders deep", first("data", "file", "data/deep/c.bin"), r"data\[0\].file needs a name"),
    ("hidden file", first("data", "file", "data/.c"), r"data\[0\].file needs a name"),
    ("folder as a file", first("data", "file", "data"), "data: is not a file"),
    ("file that is not there", first("data", "file", "data/d.bin"), "data/d.bin: is not a file"),
    ("data beyond the arena", first("data", "offset", 1 << 40), "data/c.bin needs an end inside the arena"),
    ("data of another size", first("data", "bytes", 200), "c.bin: needs 200 bytes, has 288"),
    ("machine code above", first("modules", "cubin", "../two.cubin"), r"modules\[0\].cubin needs a name"),
    ("module that is not there", first("launches", "module", 1), "launch of Scale/1 needs a module below 1, has 1"),
    ("grid of two", first("launches", "grid", [4, 1]), r"launches\[0\].grid needs a list of 3"),
    ("grid too tall", first("launches", "grid", [4, 1, 65536]), r"launches\[0\].grid.* needs"),
    ("grid of nothing", first("launches", "grid", [0, 1, 1]), r"launches\[0\].grid.* needs"),
    ("block too large", first("launches", "block", [32, 33, 1]), "at most 1024 threads per block, has 1056"),
    ("shared memory beyond all", first("launches", "shared_bytes", 1 << 21), "shared_bytes needs a whole number"),
    ("shared memory beyond the device", first("launches", "shared_bytes", 1 << 20), "shared"),
    ("capital digits", first("launches", "parameters", "0A" * 32), "parameters needs"),
    ("odd digits", first("launches", "parameters", "000"), "parameters needs"),
    ("no digits", first("launches", "parameters", "zz" * 16), "parameters needs"),
    ("too many parameters", first("launches", "parameters", "00" * 4097), "parameters needs"),
    (
        "relocation beyond the parameters",
        moved(at=25),
        "needs addresses inside 32 bytes of parameters, has 25",
    ),
    ("relocation far beyond", moved(at=1 << 60), "at needs a whole number"),
    ("relocation of no tensor", moved(tensor=4), "launch of Scale/1 needs tensors below 4 in relocations, has 4"),
    (
        "address beyond its tensor",
        moved(plus=241),
        "needs addresses inside a tensor of 240 bytes, has 241",
    ),
    ("kernel with a slash", first("launches", "kernel", "a/b"), "kernel needs a name"),
    (
        "kernel that is not there",
        first("launches", "kernel", "absent"),
        "layer Scale/1: kernel absent .*no kernel absent",
    ),
    ("list as an object", lambda v: v.update(launches={}), "launches needs a list"),
    ("object as a list", lambda v: v.update(launches=[[]]), r"launches\[0\] needs an object"),
    ("null", lambda v: v.update(tensors=None), "tensors needs a list"),
)
"""Lists of launches that lie, and a pattern of what the runner in Python says."""

TEXTS: tuple[tuple[str, Callable[[bytes], bytes], str], ...] = (
    ("nothing", lambda _: b"", "is not JSON"),
    ("half of it", lambda data: data[: len(data) // 2], "is not JSON"),
    ("more behind it", lambda data: data + b"{}", "is not JSON"),
    ("depth", lambda _: b"[" * 1_000_000, "is not JSON"),
    ("depth inside", lambda data: data.replace(b'"grid": [', b'"grid": ' + b"[" * 1_000_000, 1), "is not JSON"),
    ("no UTF-8", lambda data: data.replace(b"float16", b"\xff\xfe", 1), "is not JSON"),
    (
        "key twice",
        lambda data: data.replace(b'"role": "input"', b'"role": "input", "role": "input"', 1),
        "a key twice: role",
    ),
    ("end in an escape", lambda data: data[: data.index(b"x/in")] + b"\\", "is not JSON"),
    ("half a pair", lambda data: data.replace(b"x/in", b"\\ud800", 1), r"tensors\[0\].name"),
    ("leading zero", lambda data: data.replace(b'"offset": 0', b'"offset": 00', 1), "is not JSON"),
)
"""`launches.json` damaged as a text, and a pattern of what the runner in Python says."""

FILES: tuple[tuple[str, str, Callable[[bytes], bytes], str, str], ...] = (
    (
        "constants cut off",
        "data/c.bin",
        lambda data: data[:-1],
        "c.bin: needs 288 bytes, has 287",
        "c.bin: needs 288 bytes, has 287",
    ),
    (
        "machine code cut off",
        "kernels/two.cubin",
        lambda data: data[: len(data) // 2],
        "two.cubin: is cut off",
        "two.cubin: is not machine code of a GPU, or is cut off",
    ),
    (
        "machine code of 40 bytes",
        "kernels/two.cubin",
        lambda data: data[:40],
        "two.cubin: is not machine code of a GPU",
        "two.cubin: is not machine code of a GPU, or is cut off",
    ),
    (
        "other machine code",
        "kernels/two.cubin",
        lambda data: b"MZ" + data[2:],
        "two.cubin: is not machine code of a GPU",
        "two.cubin: is not machine code of a GPU, or is cut off",
    ),
    (
        "sections beyond the end",
        "kernels/two.cubin",
        lambda data: data[:40] + b"\xff" * 8 + data[48:],
        "two.cubin: is cut off",
        "two.cubin: is not machine code of a GPU, or is cut off",
    ),
    (
        "program headers beyond the end",
        "kernels/two.cubin",
        lambda data: data[:32] + b"\xff" * 8 + data[40:],
        "two.cubin: is cut off",
        "two.cubin: is not machine code of a GPU, or is cut off",
    ),
    (
        "sections right behind the end",
        "kernels/two.cubin",
        lambda data: data[:40] + struct.pack("<Q", len(data) + 64) + data[48:],
        "two.cubin: is cut off",
        "two.cubin: is not machine code of a GPU, or is cut off",
    ),
    (
        "one section beyond the end",
        "kernels/two.cubin",
        lambda data: with_section_size(data, 1, len(data)),
        "two.cubin: is cut off",
        "two.cubin: is not machine code of a GPU, or is cut off",
    ),
)
"""Other files that are damaged, a pattern of what the runner in Python says, and what the runner in C says."""
