"""What a stranger may have done to a folder, and what the runners in Python (a pattern) and in C (a text) say of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Change = Callable[[Any], object]


def first(entry: str, key: str, value: object) -> Change:
    """Sets a key of the first of a list's items."""
    return lambda value_of: value_of[entry][0].__setitem__(key, value)


def moved(**values: object) -> Change:
    """Changes the first relocation."""
    return lambda value_of: value_of["launches"][0]["relocations"][0].update(values)


CHANGES: tuple[tuple[str, Change, str, str], ...] = (
    (
        "later format",
        lambda v: v.update(format="dsa-sched-launches/2"),
        "format needs dsa-sched-launches/1, has dsa-sched-launches/2",
        "needs format dsa-sched-launches/1, has dsa-sched-launches/2",
    ),
    ("unknown key", lambda v: v.update(more=1), "the list needs the keys", "list: has a key that is not known"),
    ("missing key", lambda v: v.pop("data"), "the list needs the keys", "list: lacks the key data"),
    (
        "unknown key of a relocation",
        moved(kind="descriptor"),
        "relocation, needs the keys at, tensor",
        "relocation: has a key that is not known",
    ),
    (
        "architecture",
        lambda v: v.update(architecture="compute_80"),
        "architecture needs a name",
        "architecture compute_80 is not known",
    ),
    (
        "architecture with a tail",
        lambda v: v.update(architecture="sm_80x"),
        "architecture needs a name",
        "architecture sm_80x is not known",
    ),
    (
        "architecture with a sign",
        lambda v: v.update(architecture="sm_+80"),
        "architecture needs a name",
        "architecture sm_+80 is not known",
    ),
    (
        "arena of nothing",
        lambda v: v.update(arena_bytes=0),
        "tensor 0 needs an end inside the arena of 0 bytes",
        "tensor x/in ends beyond the arena",
    ),
    (
        "arena beyond all",
        lambda v: v.update(arena_bytes=1 << 47),
        "arena_bytes needs a whole number",
        "has a number out of range",
    ),
    (
        "more memory than there is",
        lambda v: v.update(arena_bytes=1 << 45),
        "bytes of global memory",
        "memory for values and constants: out of memory",
    ),
    ("number as text", lambda v: v.update(arena_bytes="5"), "arena_bytes needs a whole number", "needs a whole number"),
    (
        "number with a fraction",
        lambda v: v.update(arena_bytes=1.5),
        "arena_bytes needs a whole number",
        "has a number out of range",
    ),
    ("negative number", first("tensors", "offset", -1), "tensor 0.offset needs a whole number", "needs a whole number"),
    (
        "truth as a number",
        first("tensors", "offset", True),
        "tensor 0.offset needs a whole number",
        "needs a whole number",
    ),
    ("tensor beyond the arena", first("tensors", "offset", 1 << 40), "inside the arena", "ends beyond the arena"),
    (
        "input larger than its range",
        first("tensors", "shape", [1 << 40, 1 << 40]),
        "input x/in needs",
        "input x/in is larger than its range",
    ),
    (
        "axis of nothing",
        first("tensors", "shape", [0, 40]),
        "tensor 0.shape needs a whole number from 1",
        "tensor x/in has an axis of 0",
    ),
    (
        "rank of 17",
        first("tensors", "shape", [1] * 17),
        "tensor 0.shape needs a list of 0 to 16",
        "more than 16 numbers in a list",
    ),
    (
        "layout of another rank",
        first("tensors", "layout", [0]),
        "input x/in needs a layout of the shape's rank",
        "input x/in has a layout of another rank",
    ),
    (
        "too many inputs",
        lambda v: v["tensors"].extend([{**v["tensors"][0], "name": f"x{k}"} for k in range(4095)]),
        "tensors needs at most 4096 inputs and outputs, has 4097",
        "needs at most 4096 inputs and outputs",
    ),
    ("role", first("tensors", "role", "inputs"), "tensor 0.role needs one of input", "role inputs is not known"),
    (
        "type",
        first("tensors", "dtype", "bfloat16"),
        "tensor 0.dtype needs one of float16",
        "dtype bfloat16 is not known",
    ),
    (
        "name with a line end",
        first("tensors", "name", "a\nb"),
        "tensor 0.name needs a name",
        "tensor: has an escape that is not known",
    ),
    (
        "name with a control character",
        first("tensors", "name", "a\x01b"),
        "tensor 0.name needs a name",
        "tensor: has a control character",
    ),
    ("empty name", first("tensors", "name", ""), "tensor 0.name needs a name", "tensor: has an empty string"),
    (
        "long name",
        first("tensors", "name", "n" * 5000),
        "tensor 0.name needs a name",
        "tensor: has a string that is too long",
    ),
    (
        "file above",
        first("data", "file", "../c.bin"),
        "data 0.file needs a name",
        "../c.bin is no name of a file of the folder",
    ),
    (
        "file from the root",
        first("data", "file", "/etc/passwd"),
        "data 0.file needs a name",
        "/etc/passwd is no name of a file",
    ),
    (
        "file inside too far",
        first("data", "file", "data/../../c.bin"),
        "data 0.file needs a name",
        "is no name of a file",
    ),
    ("hidden file", first("data", "file", "data/.c"), "data 0.file needs a name", "data/.c is no name of a file"),
    ("folder as a file", first("data", "file", "data"), "data: is no file", "data: is no file"),
    (
        "file that is not there",
        first("data", "file", "data/d.bin"),
        "data/d.bin: is no file",
        "data/d.bin: No such file",
    ),
    (
        "data beyond the arena",
        first("data", "offset", 1 << 40),
        "data 0 needs an end inside the arena",
        "data/c.bin ends beyond the arena",
    ),
    (
        "data of another size",
        first("data", "bytes", 200),
        "c.bin: needs 200 bytes, has 288",
        "c.bin: needs 200 bytes, has 288",
    ),
    (
        "machine code above",
        first("modules", "cubin", "../two.cubin"),
        "module 0.cubin needs a name",
        "../two.cubin is no name of a file",
    ),
    (
        "module that is not there",
        first("launches", "module", 1),
        "launch of Scale/1, module, needs",
        "launch of Scale/1: a module that is not there",
    ),
    (
        "grid of two",
        first("launches", "grid", [4, 1]),
        "launch of Scale/1, grid, needs a list of 3",
        "launch of Scale/1: no such grid or block",
    ),
    (
        "grid too tall",
        first("launches", "grid", [4, 1, 65536]),
        "launch of Scale/1, grid, needs",
        "launch of Scale/1: no such grid or block",
    ),
    (
        "grid of nothing",
        first("launches", "grid", [0, 1, 1]),
        "launch of Scale/1, grid, needs",
        "launch of Scale/1: no such grid or block",
    ),
    (
        "block too large",
        first("launches", "block", [32, 33, 1]),
        "at most 1024 threads a block, has 1056",
        "no such grid or block",
    ),
    (
        "shared memory beyond all",
        first("launches", "shared_bytes", 1 << 21),
        "shared_bytes, needs a whole number",
        "launch: has a number out of range",
    ),
    (
        "shared memory beyond the device",
        first("launches", "shared_bytes", 1 << 20),
        "shared",
        "layer Scale/1: kernel scale_add: 1048576 bytes of shared memory: invalid",
    ),
    ("capital digits", first("launches", "parameters", "0A" * 32), "parameters, needs", "needs a hexadecimal digit"),
    (
        "odd digits",
        first("launches", "parameters", "000"),
        "parameters, needs",
        "launch: needs pairs of hexadecimal digits",
    ),
    ("no digits", first("launches", "parameters", "zz" * 16), "parameters, needs", "launch: needs a hexadecimal digit"),
    (
        "too many parameters",
        first("launches", "parameters", "00" * 4097),
        "parameters, needs",
        "launch: needs pairs of hexadecimal digits",
    ),
    (
        "relocation beyond the parameters",
        moved(at=25),
        "relocation, needs a whole number from 0 to 24",
        "a relocation beyond the parameters",
    ),
    (
        "relocation far beyond",
        moved(at=1 << 60),
        "relocation, needs a whole number",
        "relocation: has a number out of range",
    ),
    ("relocation of no tensor", moved(tensor=4), "tensor of a relocation, needs", "a tensor that is not there"),
    (
        "address beyond its tensor",
        moved(plus=241),
        "address beyond a tensor, needs a whole number from 0 to 240",
        "an address beyond its tensor",
    ),
    (
        "kernel with a slash",
        first("launches", "kernel", "a/b"),
        "kernel, needs a name",
        "launch of Scale/1: no such name of a kernel",
    ),
    (
        "kernel that is not there",
        first("launches", "kernel", "absent"),
        "layer Scale/1: kernel absent .*no kernel absent",
        "layer Scale/1: kernel absent: named symbol not found",
    ),
    ("list as an object", lambda v: v.update(launches={}), "launches needs a list", "list: needs '\\['"),
    ("object as a list", lambda v: v.update(launches=[[]]), "launch 0 needs an object", "launch: needs '{'"),
    ("null", lambda v: v.update(tensors=None), "tensors needs a list", "list: needs '\\['"),
)

BYTES: tuple[tuple[str, str, Callable[[bytes], bytes], str, str], ...] = (
    ("nothing", "launches.json", lambda _: b"", "is no JSON", "list: needs '{'"),
    ("half of it", "launches.json", lambda data: data[: len(data) // 2], "is no JSON", "launches.json: byte"),
    ("more behind it", "launches.json", lambda data: data + b"{}", "is no JSON", "list: has something behind its end"),
    ("depth", "launches.json", lambda _: b"[" * 1_000_000, "is no JSON", "list: needs '{'"),
    (
        "depth inside",
        "launches.json",
        lambda data: data.replace(b'"grid": [', b'"grid": ' + b"[" * 1_000_000, 1),
        "is no JSON",
        "launch: needs a whole number",
    ),
    ("no UTF-8", "launches.json", lambda data: data.replace(b"float16", b"\xff\xfe", 1), "is no JSON", "is not known"),
    (
        "key twice",
        "launches.json",
        lambda data: data.replace(b'"role": "input"', b'"role": "input", "role": "input"', 1),
        "a key twice: role",
        "tensor: has a key twice",
    ),
    (
        "end in an escape",
        "launches.json",
        lambda data: data[: data.index(b"x/in")] + b"\\",
        "is no JSON",
        "a string without an end",
    ),
    (
        "half a pair",
        "launches.json",
        lambda data: data.replace(b"x/in", b"\\ud800", 1),
        "tensor 0.name",
        "tensor: has half a surrogate pair",
    ),
    (
        "leading zero",
        "launches.json",
        lambda data: data.replace(b'"offset": 0', b'"offset": 00', 1),
        "is no JSON",
        "has a number out of range",
    ),
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
        "two.cubin: is no machine code of a GPU, or cut off",
    ),
    (
        "machine code of 40 bytes",
        "kernels/two.cubin",
        lambda data: data[:40],
        "two.cubin: is no machine code of a GPU",
        "two.cubin: is no machine code of a GPU, or cut off",
    ),
    (
        "other machine code",
        "kernels/two.cubin",
        lambda data: b"MZ" + data[2:],
        "two.cubin: is no machine code of a GPU",
        "two.cubin: is no machine code of a GPU, or cut off",
    ),
    (
        "sections beyond the end",
        "kernels/two.cubin",
        lambda data: data[:40] + b"\xff" * 8 + data[48:],
        "two.cubin: is cut off",
        "two.cubin: is no machine code of a GPU, or cut off",
    ),
)
