"""Boxes to copies: a box of a row-major tensor as the fewest strided runs of bytes.

box of a dense tensor in one memory  -->  Copy, Copy, ...  -->  the same box, dense, in another memory
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from isched.program.program import Region
from isched.program.target import MemoryCopy, PlacedArray
from partitioner.ir.regions import Box, box_shape, relative


def box_regions(memory: str, base_bytes: int, shape: tuple[int, ...], box: Box, item_bytes: int) -> tuple[Region, ...]:
    """The bytes of `box` in a dense row-major tensor of `shape` at `base_bytes`, in row-major order of the box."""
    offset, stride = base_bytes, item_bytes
    dims: list[tuple[int, int]] = []  # (count, stride in bytes), outer first
    for (low, high), extent in zip(reversed(box), reversed(shape), strict=True):
        offset += low * stride
        count = high - low
        if dims and dims[0][0] * dims[0][1] == stride:
            dims[0] = (dims[0][0] * count, dims[0][1])
        elif count > 1 or not dims:
            dims.insert(0, (count, stride))
        stride *= extent
    run = item_bytes
    if dims and dims[-1][1] == item_bytes:
        run = dims.pop()[0] * item_bytes
    rows, pitch = dims.pop() if dims else (1, 0)
    if not dims:
        return (Region(memory, offset, run, rows, pitch if rows > 1 else 0),)
    return tuple(
        Region(
            memory,
            offset + sum(i * s for i, (_, s) in zip(point, dims, strict=True)),
            run,
            rows,
            pitch if rows > 1 else 0,
        )
        for point in product(*(range(count) for count, _ in dims))
    )


def copies(source: PlacedArray, destination: PlacedArray, box: Box, item_bytes: int) -> list[MemoryCopy]:
    """Copies of `box` between two dense arrays that hold it: the fewest copies, each with rows at one pitch on one side
    and one run of bytes on the other."""
    ways = [list(_packed_at(source, destination, box, item_bytes, packed)) for packed in (True, False)]
    return min(ways, key=len)


def packed_copies(
    source: PlacedArray, destination: PlacedArray, box: Box, item_bytes: int, at_source: bool
) -> list[MemoryCopy]:
    """Copies of `box` between two dense arrays, of which one side must be one run of bytes: the source's or the
    destination's."""
    return list(_packed_at(source, destination, box, item_bytes, at_source))


def _packed_at(
    source: PlacedArray, destination: PlacedArray, box: Box, item_bytes: int, at_source: bool
) -> Iterator[MemoryCopy]:
    near, far = (source, destination) if at_source else (destination, source)
    for run in _runs(near.box, box):
        start = near.offset_bytes + item_bytes * _linear(near.box, run)
        for region in box_regions(far.memory, far.offset_bytes, box_shape(far.box), relative(run, far.box), item_bytes):
            dense = _packed(near.memory, start, region)
            start += region.size_bytes
            yield MemoryCopy(dense, region) if at_source else MemoryCopy(region, dense)


def _runs(whole: Box, box: Box) -> Iterator[Box]:
    """Parts of `box`, each of which is one run in a dense array over `whole`."""
    axis = len(box) - 1
    while axis > 0 and box[axis] == whole[axis]:
        axis -= 1
    for point in product(*(range(low, high) for low, high in box[: max(axis, 0)])):
        yield (*((i, i + 1) for i in point), *box[max(axis, 0) :])


def _linear(whole: Box, part: Box) -> int:
    """Position of the first element of `part` in a dense array over `whole`."""
    offset = 0
    for (low, _), (start, end) in zip(part, whole, strict=True):
        offset = offset * (end - start) + low - start
    return offset


def _packed(memory: str, offset_bytes: int, like: Region) -> Region:
    return Region(memory, offset_bytes, like.row_bytes, like.rows, like.row_bytes if like.rows > 1 else 0)
