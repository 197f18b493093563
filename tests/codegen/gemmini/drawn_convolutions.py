"""Drawn programs of loops over convolutions, with what they compute by numpy.

seed --draw--> convolutions: extents, strides, dilation, padding, parts of rows, columns, channels in and out, halves,
               pixels side by side, pools, channels by themselves, scale --loop_conv_ws--> memory
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt

from codegen.gemmini.isa.convolution_loops import ConvolutionLoop
from codegen.gemmini.isa.geometry import DEFAULT
from codegen.gemmini.streams.streams import once
from tests.codegen.gemmini.drawn_loops import DIM, HALF, SCALES, Drawing, DrawnLoops, loops_executable

Array = npt.NDArray[np.generic]


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


def convolved(x: npt.NDArray[np.int8], w: npt.NDArray[np.int8], extents: _Extents) -> npt.NDArray[np.int32]:
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


class _Drawing(Drawing):
    """Convolutions are drawn into it."""

    def _extents(self, alone: bool) -> _Extents:
        draw = self.draw
        while True:
            taps = draw.choice(((1, 1), (3, 3), (2, 2), (3, 1), (5, 5), (7, 7)))
            taps = (max(taps), max(taps)) if alone else taps
            stride, dilation = draw.randint(1, 3 if not alone else 2), draw.choice((1, 1, 2))
            found = _Extents(
                draw.choice((1, 1, 2)), draw.randint(1, 12), draw.randint(1, 24), 1 if alone else draw.randint(1, 70),
                1 if alone else draw.randint(1, 40), taps, stride, dilation,
                tuple(draw.randint(0, 2) for _ in range(4)),
            )  # fmt: skip
            if min(found.out(0), found.out(1)) > 0 and found.most_rows() <= HALF:
                return found

    def convolution(self) -> None:
        """One convolution, cut into parts of rows, columns, filters and channels that are loops of their own."""
        draw, integers = self.draw, self.random.integers
        alone = draw.random() < 0.15
        e = self._extents(alone)
        thins = e.taps == (1, 1) and e.stride == 2 and not any(e.pads)
        side_by_side = e.channels <= 5 and e.dilation == 1 and not alone and draw.random() < 0.7
        x = integers(-128, 128, (e.images, e.rows, e.columns, e.channels)).astype(np.int8)
        w = integers(-128, 128, (*e.taps, e.channels, e.filters)).astype(np.int8)
        bias = integers(-(1 << 20), 1 << 20, e.filters).astype(np.int32)
        biased, relu, scale = draw.random() < 0.7, draw.randrange(2), draw.choice(SCALES)
        total = convolved(x, w, e) + (bias if biased else 0)
        in_stride, out_stride = e.channels + draw.choice((0, 3)), e.filters + draw.choice((0, 16))
        x_at = self._placed_rows(x, in_stride)
        w_at = self._bytes(w)
        bias_at = self._bytes(bias)
        rows, columns = e.out(0), e.out(1)
        pooled = not alone and draw.random() < 0.25 and rows * columns <= 40
        values = self._finished(total, relu, scale)
        pool: dict[str, int] = {}
        if pooled:
            size, step, pad = draw.randint(1, 3), draw.randint(1, 3), draw.randint(0, 1)
            out_rows, out_columns = ((extent + 2 * pad - size) // step + 1 for extent in (rows, columns))
            pooled = min(out_rows, out_columns) > 0 and pad < size
            if pooled:
                values = _maxima(values, size, step, pad, out_rows, out_columns)
                pool = {"no_pool": 0, "pool_size": size, "pool_stride": step, "pool_padding": pad, "pool_top": pad,
                        "pool_left": pad, "pool_out_rows": out_rows, "pool_out_columns": out_columns,
                        "part_rows": out_rows, "part_columns": out_columns}  # fmt: skip
        y_at = self.room(values.shape[0] * values.shape[1] * values.shape[2] * out_stride)
        self.loops += [
            once("config_ex", weight_stationary=1, a_stride=1 if thins else e.stride, c_stride=1),
            once("config_st", activation=relu, stride=out_stride, scale=scale),
        ]
        pixels = draw.randint(2, DIM // e.channels) if side_by_side else 1
        whole = e, pixels, thins, alone, in_stride, out_stride
        for images, r, c, f in self._parts(e, rows, columns, bool(pool)):
            cuts = self._cuts(e.channels) if pixels == 1 else [(0, e.channels)]
            for number, k in enumerate(cuts):
                first, last = number == 0, number == len(cuts) - 1
                loop = self._loop(whole, images, r, c, f, k, pool)
                out = y_at + ((images[0] * values.shape[1] + r[0]) * values.shape[2] + c[0]) * out_stride + f[0]
                fields = {
                    "bias": (bias_at + 4 * f[0]) if first else 0, "no_bias": int(not biased),
                    "output": out if last else 0, "activation": relu,
                    "weights": w_at + (0 if alone else k[0] * e.filters + f[0]),
                    "input": loop["input"] + x_at,
                }  # fmt: skip
                self.loops += [
                    once(name, **given) for name, given in ConvolutionLoop(**{**loop, **fields}).operations()
                ]
        for image, row, column in product(*map(range, values.shape[:3])):
            pixel = (image * values.shape[1] + row) * values.shape[2] + column
            self.results[y_at + pixel * out_stride] = values[image, row, column].tobytes()

    def _bytes(self, values: Array) -> int:
        start = self.room(values.nbytes)
        self.loads[start] = values.tobytes()
        return start

    def _placed_rows(self, x: npt.NDArray[np.int8], stride: int) -> int:
        wide = np.zeros((*x.shape[:3], stride), np.int8)
        wide[..., : x.shape[3]] = x
        return self._bytes(wide)

    def _cuts(self, extent: int) -> list[tuple[int, int]]:
        """Parts of an extent that begin at whole blocks."""
        inner = [self.draw.randrange(DIM, extent, DIM) for _ in range(self.draw.randint(0, 2)) if extent > DIM]
        bounds = sorted({0, extent, *inner})
        return list(zip(bounds, bounds[1:], strict=False))

    def _parts(self, e: _Extents, rows: int, columns: int, whole: bool):  # type: ignore[no-untyped-def]
        """Parts of images, rows, columns and filters; only filters where there is a pool."""
        draw = self.draw
        if whole:
            images = [(number, number + 1) for number in range(e.images)]
            return product(images, [(0, rows)], [(0, columns)], self._cuts(e.filters))
        high, wide = draw.randint(1, rows), draw.randint(1, columns)
        while -(-e.filters // DIM) * high * wide > DEFAULT.accumulator_rows // 2:
            high, wide = draw.randint(1, high), draw.randint(1, wide)
        cut = [[(low, min(extent, low + part)) for low in range(0, extent, part)]
               for extent, part in ((rows, high), (columns, wide))]  # fmt: skip
        together = (
            e.images * high * wide * -(-e.filters // DIM) <= DEFAULT.accumulator_rows // 2 and draw.random() < 0.5
        )
        images = [(0, e.images)] if together else [(number, number + 1) for number in range(e.images)]
        return product(images, *cut, self._cuts(e.filters))

    def _loop(self, whole, images, r, c, f, k, pool) -> dict[str, int]:  # type: ignore[no-untyped-def]
        """Fields of a loop; its input's address is counted from the first pixel on."""
        e, pixels, thins, alone, in_stride, out_stride = whole
        first, pads = [], []
        for low, high, taps, extent, pad in ((*r, e.taps[0], e.rows, e.pads[0]), (*c, e.taps[1], e.columns, e.pads[2])):
            begin = low * e.stride - pad
            patch = (high - low) * e.stride + (taps - 1) * e.dilation
            before = 0 if thins else min(patch, max(0, -begin))
            after = 0 if thins else max(0, begin + patch - extent)
            pads += [before, min(after, patch - before)]
            first.append(max(0, begin))
        rows_out, columns_out = e.out(0), e.out(1)
        return {
            "batch": e.images, "in_rows": e.rows, "in_columns": e.columns, "in_channels": e.channels,
            "out_rows": rows_out, "out_columns": columns_out, "out_channels": e.filters,
            "in_stride": in_stride, "weight_stride": e.filters, "out_stride": out_stride,
            "rows": r[1] - r[0], "columns": c[1] - c[0], "part_channels": f[1] - f[0],
            "part_images": images[1] - images[0], "kernel": e.taps[1], "kernel_rows": e.taps[0],
            "kernel_columns": e.taps[1], "kernel_channels": k[1] - k[0], "stride": e.stride, "dilation": e.dilation,
            "top": pads[0], "bottom": pads[1], "left": pads[2], "right": pads[3], "pixels_per_row": pixels,
            "downsample": int(thins), "depthwise": int(alone), "a_half": 1 if pixels > 1 else self.draw.randint(1, 2),
            "b_half": self.draw.randint(1, 2),
            "input": ((images[0] * e.rows + first[0]) * e.columns + first[1]) * in_stride + k[0], **pool,
        }  # fmt: skip

    @staticmethod
    def _finished(total: npt.NDArray[np.int32], relu: int, scale: float) -> npt.NDArray[np.int8]:
        scaled = np.clip(np.rint(total.astype(np.float32) * np.float32(scale)), -128, 127)
        return (np.maximum(scaled, 0) if relu else scaled).astype(np.int8)


def _maxima(
    values: npt.NDArray[np.int8], size: int, step: int, pad: int, rows: int, columns: int
) -> npt.NDArray[np.int8]:
    """Maxima over windows; padding counts as zero, as the accelerator has it."""
    padded = np.pad(values, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    windows = [padded[:, r::step, c::step][:, :rows, :columns] for r, c in product(range(size), range(size))]
    return np.maximum.reduce(windows)
