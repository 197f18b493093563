"""The single allocation of a GPU artifact: the tensors placed by the driver, then the data known only to kernels.

    inputs, constants, values, outputs (TensorPlaces) | padded weights and the like | memory of one layer's launches

Parameters name tensors, so that an input or output may lie in a buffer of the caller. Where several names denote the
same bytes, the name of a network input or output stands for all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from codegen.cutlass.emission.launch_list import printable
from codegen.cutlass.kernel.launches import Address, Data, LayerScratch, Place
from codegen.cutlass.runner.runner import DataFile, LaunchTensor, Relocation
from codegen.target import TensorPlaces
from hw_models.errors import TargetError
from isched.program.program import TensorPlacement
from partitioner.ir.graph import Constants, Graph, Tensor

ALIGNMENT = 256
"""Alignment of arena entries in bytes, as cudaMalloc guarantees it."""
CONSTANTS, PACKED = "data/constants.bin", "data/packed.bin"


@dataclass(frozen=True, slots=True)
class ArenaContent:
    """The finished arena: tensors in the order of their numbers, and the files of its initial contents."""

    size_bytes: int
    tensors: tuple[LaunchTensor, ...]
    data: tuple[DataFile, ...]
    files: Mapping[str, bytes]


class Arena:
    """An arena that grows with each place that is asked for; `finished` returns its layout."""

    def __init__(self, graph: Graph, places: TensorPlaces) -> None:
        self._graph = graph
        self._places = places
        self._numbers: dict[TensorPlacement | Data | int, int] = {}
        self._scratch: dict[int, int] = {}
        names = (*graph.fed, *graph.results)
        self._bound = {places.written(name).offset_bytes: places.written(name) for name in reversed(names)}
        for name in names:
            self._number(places.written(name))

    def relocation(self, at: int, place: Place, plus_bytes: int = 0) -> Relocation:
        """The relocation of a place at `at` of a parameter block. Raises TargetError for a tensor that has no place."""
        match place:
            case Address():
                number = self._number(self._placement(place))
                return Relocation(at=at, tensor=number, plus=place.plus_bytes + plus_bytes)
            case Data():
                return Relocation(at=at, tensor=self._number(place), plus=plus_bytes)
            case LayerScratch():
                self._scratch[place.number] = max(self._scratch.get(place.number, 0), place.size_bytes)
                return Relocation(at=at, tensor=self._number(place.number), plus=place.plus_bytes + plus_bytes)

    def finished(self, constants: Constants) -> ArenaContent:
        """The contents of the arena with everything placed."""
        offsets: dict[Data | int, int] = {}
        packed = bytearray()
        start = _aligned(max((p.offset_bytes + p.size_bytes for p in self._places.placements), default=0))
        for what in self._numbers:
            if isinstance(what, Data):
                packed += bytes(_aligned(len(packed)) - len(packed))
                offsets[what] = start + len(packed)
                packed += what.content
        end = _aligned(start + len(packed))
        for number, size in self._scratch.items():
            offsets[number] = end
            end = _aligned(end + size)
        runs = [(CONSTANTS, *run) for run in self._constants(constants)]
        if packed:
            runs.append((PACKED, start, bytes(packed)))
        return ArenaContent(
            end,
            tuple(self._described(what, offsets) for what in self._numbers),
            tuple(DataFile(file=name, offset=offset, bytes=len(data)) for name, offset, data in runs),
            {name: data for name, _, data in runs},
        )

    def _described(self, what: TensorPlacement | Data | int, offsets: Mapping[Data | int, int]) -> LaunchTensor:
        match what:
            case TensorPlacement():
                return self._tensor(what)
            case Data():
                return _plain(what.name, "constant", offsets[what], len(what.content))
        return _plain(f"workspace {what}", "workspace", offsets[what], self._scratch[what])

    def _number(self, what: TensorPlacement | Data | int) -> int:
        return self._numbers.setdefault(what, len(self._numbers))

    def _placement(self, place: Address) -> TensorPlacement:
        """The placement that stands for all names of the same bytes."""
        try:
            found = self._places.written(place.tensor) if place.written else self._places.read(place.tensor)
            if found.kind == "alias":
                found = self._places.written(found.of)
        except KeyError:
            raise TargetError(f"tensor {place.tensor}", needs="a place in the main memory", has="none") from None
        return self._bound.get(found.offset_bytes, found)

    def _tensor(self, placement: TensorPlacement) -> LaunchTensor:
        tensor = self._graph.by_name[placement.of if placement.kind == "probe" else placement.tensor]
        role = "value"
        if placement.kind == "constant":
            role = "constant"
        elif placement.kind != "probe" and placement.tensor in self._graph.fed:
            role = "input"
        elif placement.kind != "probe" and placement.tensor in self._graph.results:
            role = "output"
        return LaunchTensor(
            name=printable(placement.tensor),
            role=role,
            dtype=tensor.dtype,
            shape=_stored_shape(tensor, placement),
            layout=tensor.axes,
            offset=placement.offset_bytes,
            bytes=placement.size_bytes,
        )

    def _constants(self, constants: Constants) -> tuple[tuple[int, bytes], ...]:
        """The graph's constants as one run of bytes, if there are any; they are placed one after the other."""
        own = [place for place in self._places.placements if place.kind == "constant"]
        if not own:
            return ()
        first = min(place.offset_bytes for place in own)
        run = bytearray(max(place.offset_bytes + place.size_bytes for place in own) - first)
        for place in own:
            data = constants[self._graph.by_name[place.tensor].constant].tobytes()
            run[place.offset_bytes - first : place.offset_bytes - first + len(data)] = data
        return ((first, bytes(run)),)


def _stored_shape(tensor: Tensor, placement: TensorPlacement) -> tuple[int, ...]:
    """The shape of what lies there: of a value that is there slice by slice, one slice."""
    if placement.size_bytes == tensor.size_bytes:
        return tensor.shape
    return (tensor.shape[0] * placement.size_bytes // tensor.size_bytes, *tensor.shape[1:])


def _plain(name: str, role: str, offset: int, size: int) -> LaunchTensor:
    """A range of bytes without an element type."""
    return LaunchTensor(
        name=printable(name), role=role, dtype="uint8", shape=(max(size, 1),), offset=offset, bytes=size
    )


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
