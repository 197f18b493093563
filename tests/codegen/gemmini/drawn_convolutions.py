"""Drawn programs of loops over convolutions, with what they compute by numpy.

seed --draw--> convolutions: extents, strides, dilation, padding, parts of rows, columns, channels in and out, halves,
               pixels side by side, pools, channels by themselves, scale --loop_conv_ws--> memory
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np
import numpy.typing as npt

from codegen.gemmini.isa.convolution_loops import ConvolutionLoop
from codegen.gemmini.streams.streams import once
from tests.codegen.gemmini.drawn_loops import DIM, HALF, SCALES, SUMS_HALF, Drawing, DrawnLoops, loops_executable

Range = tuple[int, int]
Bytes = npt.NDArray[np.int8]
Sums = npt.NDArray[np.int32]


def drawn_convolutions(seed: int, convolutions: int = 3) -> DrawnLoops:
    drawing = _Drawing(seed)
    for _ in range(convolutions):
        drawing.convolution()
    code = loops_executable(drawing.loops, drawing.end)
    return DrawnLoops(code, code, drawing.loads, drawing.results)


@dataclass(frozen=True, slots=True)
class _Extents:
    """A convolution: images, rows and columns of the input, channels in and out, taps, and so on."""

    images: int
    rows: int
    columns: int
    channels: int
    filters: int
    taps: tuple[int, int]
    stride: int
    dilation: int
    pads: tuple[int, int, int, int]
    """Before and after rows, before and after columns."""

    def out(self, axis: int) -> int:
        pads = self.pads[2 * axis : 2 * axis + 2]
        reach = (self.taps[axis] - 1) * self.dilation + 1
        return ((self.rows, self.columns)[axis] + sum(pads) - reach) // self.stride + 1

    def most_rows(self) -> int:
        """Rows of the scratchpad for all at once, at most."""
        patch = [self.out(axis) * self.stride + (taps - 1) * self.dilation for axis, taps in enumerate(self.taps)]
        weights = -(-self.filters // DIM) * self.taps[0] * self.taps[1] * self.channels
        return -(-self.channels // DIM) * self.images * patch[0] * patch[1] + weights


def convolved(x: Bytes, w: Bytes, extents: _Extents) -> Sums:
    """x [n, h, w, c], w [kh, kw, c, f], tap by tap."""
    top, bottom, left, right = extents.pads
    padded = np.pad(x.astype(np.int32), ((0, 0), (top, bottom), (left, right), (0, 0)))
    rows, columns = extents.out(0), extents.out(1)
    total = np.zeros((x.shape[0], rows, columns, w.shape[3]), np.int32)
    for r, c in product(*map(range, extents.taps)):
        first = r * extents.dilation, c * extents.dilation
        patch = padded[:, first[0] :: extents.stride, first[1] :: extents.stride][:, :rows, :columns]
        total += patch @ w[r, c].astype(np.int32)
    return total


@dataclass(frozen=True, slots=True)
class _Way:
    """How a convolution is carried out: pixels side by side, every other pixel alone, a channel by itself, elements
    from one pixel to the next of input and result, whether something is added, Relu, and the fields of a pool."""

    extents: _Extents
    pixels: int
    thins: bool
    alone: bool
    in_stride: int
    out_stride: int
    biased: bool
    relu: int
    scale: float
    pool: Mapping[str, int]

    def finished(self, total: Sums) -> Bytes:
        """Sums as they leave, before a pool."""
        scaled = np.clip(np.rint(total.astype(np.float32) * np.float32(self.scale)), 0 if self.relu else -128, 127)
        return np.asarray(scaled, np.int8)


class _Drawing(Drawing):
    """Convolutions are drawn into it."""

    def convolution(self) -> None:
        """One convolution, cut into parts of rows, columns, filters and channels that are loops of their own."""
        integers = self.random.integers
        way = self._way()
        e = way.extents
        x = integers(-128, 128, (e.images, e.rows, e.columns, e.channels)).astype(np.int8)
        w = integers(-128, 128, (*e.taps, e.channels, e.filters)).astype(np.int8)
        bias = integers(-(1 << 20), 1 << 20, e.filters).astype(np.int32)
        values = way.finished(convolved(x, w, e) + (bias if way.biased else 0))
        if way.pool:
            values = _maxima(values, way.pool)
        wide = np.zeros((*x.shape[:3], way.in_stride), np.int8)
        wide[..., : e.channels] = x
        starts = {"input": self._brought(wide), "weights": self._brought(w), "bias": self._brought(bias),
                  "output": self.room(values.size // e.filters * way.out_stride)}  # fmt: skip
        self.loops += [
            once("config_ex", weight_stationary=1, a_stride=1 if way.thins else e.stride, c_stride=1),
            once("config_st", activation=way.relu, stride=way.out_stride, scale=way.scale),
        ]
        for part in self._parts(way):
            cuts = self._cuts(e.channels) if way.pixels == 1 else [(0, e.channels)]
            for channels in cuts:
                loop = self._loop(way, (*part, channels), starts)
                self.loops += [once(name, **given) for name, given in loop.operations()]
        for image, row, column in product(*map(range, values.shape[:3])):
            pixel = (image * values.shape[1] + row) * values.shape[2] + column
            self.results[starts["output"] + pixel * way.out_stride] = values[image, row, column].tobytes()

    def _way(self) -> _Way:
        draw = self.draw
        alone = draw.random() < 0.15
        e = self._extents(alone)
        beside = e.channels <= 5 and e.dilation == 1 and not alone and draw.random() < 0.7
        rows, columns = e.out(0), e.out(1)
        pooled = not alone and draw.random() < 0.25 and rows * columns <= 40
        return _Way(
            extents=e, pixels=draw.randint(2, DIM // e.channels) if beside else 1,
            thins=e.taps == (1, 1) and e.stride == 2 and not any(e.pads), alone=alone,
            in_stride=e.channels + draw.choice((0, 3)), out_stride=e.filters + draw.choice((0, 16)),
            biased=draw.random() < 0.7, relu=draw.randrange(2), scale=draw.choice(SCALES),
            pool=self._pool(rows, columns) if pooled else {},
        )  # fmt: skip

    def _extents(self, alone: bool) -> _Extents:
        draw = self.draw
        while True:
            taps = draw.choice(((1, 1), (3, 3), (2, 2), (3, 1), (5, 5), (7, 7)))
            taps = (max(taps), max(taps)) if alone else taps
            stride, dilation = draw.randint(1, 3 if not alone else 2), draw.choice((1, 1, 2))
            pads = draw.randint(0, 2), draw.randint(0, 2), draw.randint(0, 2), draw.randint(0, 2)
            found = _Extents(
                draw.choice((1, 1, 2)), draw.randint(1, 12), draw.randint(1, 24), 1 if alone else draw.randint(1, 70),
                1 if alone else draw.randint(1, 40), taps, stride, dilation, pads,
            )  # fmt: skip
            if min(found.out(0), found.out(1)) > 0 and found.most_rows() <= HALF:
                return found

    def _pool(self, rows: int, columns: int) -> dict[str, int]:
        """Fields of a pool over a result of so many rows and columns; none where it would be empty."""
        size, step, pad = self.draw.randint(1, 3), self.draw.randint(1, 3), self.draw.randint(0, 1)
        out_rows, out_columns = ((extent + 2 * pad - size) // step + 1 for extent in (rows, columns))
        if min(out_rows, out_columns) <= 0 or pad >= size:
            return {}
        return {"no_pool": 0, "pool_size": size, "pool_stride": step, "pool_padding": pad, "pool_top": pad,
                "pool_left": pad, "pool_out_rows": out_rows, "pool_out_columns": out_columns, "part_rows": out_rows,
                "part_columns": out_columns}  # fmt: skip

    def _brought(self, values: npt.NDArray[np.generic]) -> int:
        start = self.room(values.nbytes)
        self.loads[start] = values.tobytes()
        return start

    def _cuts(self, extent: int) -> list[Range]:
        """Parts of an extent that begin at whole blocks."""
        inner = [self.draw.randrange(DIM, extent, DIM) for _ in range(self.draw.randint(0, 2)) if extent > DIM]
        return list(pairwise(sorted({0, extent, *inner})))

    def _parts(self, way: _Way) -> Iterator[tuple[Range, ...]]:
        """Parts of images, rows, columns and filters; of images and filters alone where there is a pool."""
        draw, e = self.draw, way.extents
        rows, columns, blocks = e.out(0), e.out(1), -(-e.filters // DIM)
        each = [(number, number + 1) for number in range(e.images)]
        if way.pool:
            return product(each, [(0, rows)], [(0, columns)], self._cuts(e.filters))
        high, wide = draw.randint(1, rows), draw.randint(1, columns)
        while blocks * high * wide > SUMS_HALF:
            high, wide = draw.randint(1, high), draw.randint(1, wide)
        cut = [[(low, min(extent, low + part)) for low in range(0, extent, part)]
               for extent, part in ((rows, high), (columns, wide))]  # fmt: skip
        together = e.images * high * wide * blocks <= SUMS_HALF and draw.random() < 0.5
        return product([(0, e.images)] if together else each, *cut, self._cuts(e.filters))

    def _loop(self, way: _Way, part: tuple[Range, ...], starts: Mapping[str, int]) -> ConvolutionLoop:
        images, rows, columns, filters, channels = part
        e, first, pads = way.extents, list[int](), list[int]()
        for axis, (low, high) in enumerate((rows, columns)):
            begin = low * e.stride - e.pads[2 * axis]
            patch = (high - low) * e.stride + (e.taps[axis] - 1) * e.dilation
            before = 0 if way.thins else min(patch, max(0, -begin))
            after = 0 if way.thins else max(0, begin + patch - (e.rows, e.columns)[axis])
            pads += [before, min(after, patch - before)]
            first.append(max(0, begin))
        pixel = (images[0] * e.rows + first[0]) * e.columns + first[1]
        out_rows, out_columns = way.pool.get("part_rows", e.out(0)), way.pool.get("part_columns", e.out(1))
        out_pixel = (images[0] * out_rows + rows[0]) * out_columns + columns[0]
        weight = 0 if way.alone else channels[0] * e.filters + filters[0]
        out = starts["output"] + out_pixel * way.out_stride + filters[0]
        return ConvolutionLoop(
            input=starts["input"] + pixel * way.in_stride + channels[0], weights=starts["weights"] + weight,
            bias=starts["bias"] + 4 * filters[0] if channels[0] == 0 else 0,
            output=out if channels[1] == e.channels else 0, no_bias=int(not way.biased), activation=way.relu,
            batch=e.images, in_rows=e.rows, in_columns=e.columns, in_channels=e.channels, out_rows=e.out(0),
            out_columns=e.out(1), out_channels=e.filters, in_stride=way.in_stride, weight_stride=e.filters,
            out_stride=way.out_stride, rows=rows[1] - rows[0], columns=columns[1] - columns[0],
            part_channels=filters[1] - filters[0], part_images=images[1] - images[0], kernel=e.taps[1],
            kernel_rows=e.taps[0], kernel_columns=e.taps[1], kernel_channels=channels[1] - channels[0],
            stride=e.stride, dilation=e.dilation, top=pads[0], bottom=pads[1], left=pads[2], right=pads[3],
            pixels_per_row=way.pixels, downsample=int(way.thins), depthwise=int(way.alone),
            a_half=1 if way.pixels > 1 else self.draw.randint(1, 2), b_half=self.draw.randint(1, 2), **way.pool,
        )  # fmt: skip


def _maxima(values: Bytes, pool: Mapping[str, int]) -> Bytes:
    """Maxima over windows; padding counts as zero, as the accelerator has it."""
    size, step, pad = pool["pool_size"], pool["pool_stride"], pool["pool_padding"]
    padded = np.pad(values, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    windows: list[Bytes] = [
        padded[:, r::step, c::step][:, : pool["part_rows"], : pool["part_columns"]]
        for r, c in product(range(size), range(size))
    ]
    return np.asarray(np.stack(windows).max(axis=0), np.int8)
