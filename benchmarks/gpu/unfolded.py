"""A program of a pack as the folder that a runner reads, its weights made from their seeds.

    Pack, Program --unfold--> launches.json, kernels, data        --> Network(folder) of `codegen.cutlass.runner`
                  --network--> graph, plan, constants                 for whoever judges it

Standard library and NumPy only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.gpu.packed_weights import Movement, from_bytes, in_a_row, moved
from benchmarks.gpu.store import Pack, Program
from benchmarks.gpu.synthetic import Array, drawn, is_drawn
from hw_models.errors import FileError
from partitioner.ir.graph import Graph
from partitioner.ir.graph_text import parse_graph
from partitioner.ir.plan import Plan, parse_plan

__all__ = ["Unfolded", "unfolded"]

LAUNCHES = "launches.json"
MOST_DATA_BYTES = 8 << 30
KEPT_DIGITS = 24


@dataclass(frozen=True)
class Unfolded:
    """A program in a folder of its own."""

    pack: Pack
    program: Program
    folder: Path

    @cached_property
    def graph(self) -> Graph:
        return parse_graph(self.pack.text(self.program.entry["graph"]))

    @cached_property
    def plan(self) -> Plan:
        return parse_plan(self.pack.text(self.program.entry["plan"]))

    @cached_property
    def recipes(self) -> dict[str, Any]:
        return dict(json.loads(self.pack.text(self.program.entry["constants"])))

    @cached_property
    def constants(self) -> dict[str, Array]:
        """By content hash of the network's own, as the graph names them."""
        return _constants(self.pack, self.program.entry["constants"])

    @cached_property
    def listed(self) -> dict[str, Any]:
        """The list of launches, as JSON."""
        return dict(json.loads(self.pack.object(self.program.entry["launches"])))

    def write(self) -> None:
        """All files of the folder. Raises FileError for a pack that does not fit together."""
        for name, content in self.program.entry["modules"].items():
            self._file(name).write_bytes(self.pack.object(content))
        self._file(LAUNCHES).write_bytes(self.pack.object(self.program.entry["launches"]))
        for data in self.listed["data"]:
            if not 0 <= data["bytes"] <= MOST_DATA_BYTES:
                raise FileError(data["file"], needs=f"at most {MOST_DATA_BYTES} bytes", has=str(data["bytes"]))
            content = np.zeros(data["bytes"], np.uint8)
            for offset, part in (*self._weights(), *self._packed()):
                first = offset - data["offset"]
                if first >= 0 and first + len(part) <= len(content):
                    content[first : first + len(part)] = np.frombuffer(part, np.uint8)
            content.tofile(self._file(data["file"]))

    def _file(self, name: str) -> Path:
        path = (self.folder / name).resolve()
        if not path.is_relative_to(self.folder.resolve()):
            raise FileError(f"{self.pack.folder}", needs="files inside their folder", has=name[:80])
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _weights(self) -> Iterator[tuple[int, bytes]]:
        """The network's own constants that launches read."""
        for tensor in self.listed["tensors"]:
            known = self.graph.by_name.get(tensor["name"])
            if tensor["role"] == "constant" and known is not None and known.constant:
                yield tensor["offset"], np.ascontiguousarray(self.constants[known.constant]).tobytes()

    def _packed(self) -> Iterator[tuple[int, bytes]]:
        for entry in self.program.entry["packed"]:
            if "content" in entry:
                yield entry["offset"], self.pack.object(entry["content"])
            else:
                movement = Movement(str(entry["dtype"]), from_bytes(self.pack.object(entry["places"])))
                yield entry["offset"], moved(movement, self._row)

    @cached_property
    def _row(self) -> Array:
        """All weights that are drawn, one after the other."""
        keys = [key for key in sorted(self.recipes) if is_drawn(self.recipes[key])]
        return in_a_row(self.constants[key] for key in keys)


@lru_cache(maxsize=8)
def _constants(pack: Pack, name: str) -> dict[str, Array]:
    """Those of one object of recipes: batches and levels of a network share them."""
    return {key: drawn(recipe) for key, recipe in json.loads(pack.text(name)).items()}


@contextmanager
def unfolded(pack: Pack, program: Program) -> Iterator[Unfolded]:
    """The program in a folder that goes afterwards, or stays where the pack keeps such folders."""
    if pack.kept is not None:
        yield _kept(pack, program, pack.kept)
        return
    with TemporaryDirectory(prefix="gpu-pack-") as scratch:
        made = Unfolded(pack, program, Path(scratch))
        made.write()
        yield made


def _kept(pack: Pack, program: Program, kept: Path) -> Unfolded:
    name = sha256(f"{pack.hash} {program.key}".encode()).hexdigest()[:KEPT_DIGITS]
    if not (kept / name).is_dir():
        kept.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".new-", dir=kept) as scratch:
            Unfolded(pack, program, Path(scratch) / name).write()
            with suppress(OSError):  # another process was faster
                (Path(scratch) / name).rename(kept / name)
    return Unfolded(pack, program, kept / name)
