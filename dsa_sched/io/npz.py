"""Arrays in and out of `.npz` files, which come from strangers too.

    x.npz --bounded, no pickle--> {name: array}          {name: array} --whole or not at all--> y.npz

A file may not claim more bytes than its caller is ready to hold, whatever its compression says. Written files depend on
the arrays alone, not on the date.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from dsa_sched.io.atomic_write import write_whole
from hw_models.errors import UserError, size_text

Array = npt.NDArray[np.generic]

HEADER_BYTES = 1 << 16
"""Largest size in bytes of one array's header."""


def read_arrays(path: Path, bound_bytes: int) -> dict[str, Array]:
    """All arrays of an .npz file, `bound_bytes` at most together. Raises UserError naming the file and array."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            size = sum(member.file_size for member in members)
            if size > bound_bytes + HEADER_BYTES * max(1, len(members)):
                raise UserError(str(path), needs=f"at most {size_text(bound_bytes)} of arrays", has=size_text(size))
            return {member.filename.removesuffix(".npy"): _read(path, archive, member) for member in members}
    except zipfile.BadZipFile as error:
        raise UserError(
            str(path), needs="an .npz file of arrays", has=str(error), change="write it with numpy.savez"
        ) from None
    except OSError as error:
        raise UserError(str(path), needs="an .npz file that can be read", has=_reason(error)) from None


def _read(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Array:
    try:
        with archive.open(member) as stream:
            # The stream ends at the size in the archive, so an array cannot be larger than was counted.
            array: Array = np.lib.format.read_array(stream, allow_pickle=False)
            return array
    except (ValueError, EOFError, NotImplementedError, RuntimeError, zipfile.BadZipFile, MemoryError) as error:
        reason = str(error).splitlines()[0] if str(error) else "a damaged array"
        raise UserError(f"{path}, array {member.filename}", needs="a plain array of numbers", has=reason) from None


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write an .npz file that `numpy.load` reads, its folder too; whole or not at all. Raises UserError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(str(path), needs="a place that can be written", has=_reason(error)) from None
    write_whole(path, lambda stream: _write(stream, arrays))


def _write(stream: IO[bytes], arrays: Mapping[str, Array]) -> None:
    with zipfile.ZipFile(stream, "w") as archive:
        for name, array in arrays.items():
            # A fixed date, and names of any kind: numpy.savez takes names as keyword arguments.
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
