"""The matrix engine: matrix products and convolutions on uint16 (fp16) and int8 operands, exact to the bit.

Pure functions: operands are arrays with any strides (the machine checks addresses, shapes and CSRs and stores the
results); results are new contiguous arrays.

    image [H, W, C] --pad, widen--> float32 --sliding windows--> patches [pixels, K] --dot_rows--> [pixels, N]

fp16 results follow from two accumulators per output (see `fp16.dot_rows`); padded taps are multiplied too, so an
infinite weight on the padding gives NaN. int8 results are exact int32; the `hf` forms multiply that by an fp16 number
with one rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from codegen.neuralscale.simulator.arithmetic import fp16
from codegen.neuralscale.simulator.arithmetic.fp16 import Bits, Floats, Int8s, Int32s
from codegen.neuralscale.simulator.arithmetic.vme import mul_x32

_PATCH_ELEMENTS = 1 << 17  # patches made at a time, so that they stay in the host's second-level cache
_VECTOR = 16  # fewer output channels than this do not fill the host's vector registers

Kernel = Callable[[Any, Any, Any], None]  # left[P, K], right[K, N], out[P, N]


def output_size(size: int, padding: int, kernel: int, stride: int, dilation: int) -> int:
    """Output extent of a convolution along one axis; `padding` is the sum of both sides. At most 0 means no output."""
    return (size + padding - (dilation * (kernel - 1) + 1)) // stride + 1


def memul(a: Bits, b: Bits) -> Bits:
    """`memul.mm`: a[M, K] times b[K, N] in fp16 -> [M, N]. Pass `a.T` for `memul.ts.mm`."""
    windows = _rows(_widened(a, scaled=True), b)
    out = np.empty((len(a), 1, b.shape[1]), np.uint16)
    _convolve(fp16.dot_rows, windows, _widened(b, scaled=False), out)
    return out[:, 0]


def memul_x8(a: Int8s, b: Int8s) -> Int32s:
    """`memul.x8.mm`: int8 a[M, K] times b[K, N] -> int32 [M, N], wrapping."""
    out = np.empty((len(a), 1, b.shape[1]), np.int32)
    _convolve(fp16.dot_rows_x8, _rows(a, b), np.array(b, order="C"), out)
    return out[:, 0]


def memul_hf_x8(a: Int8s, b: Int8s, coefficient: int) -> Bits:
    """`memul.hf.x8.mm`: the int32 product of int8 matrices times the fp16 `coefficient` (bits), rounded once."""
    return mul_x32(memul_x8(a, b), np.uint16(coefficient))


def metr(a: Bits) -> Bits:
    """`metr.m`: a[R, C] transposed -> [C, R]."""
    return np.array(a.T, order="C")


def meconv(
    x: Bits, w: Bits, kernel: tuple[int, int], stride: int, dilation: int, padding: tuple[int, int, int, int]
) -> Bits:
    """`meconv.mm`: fp16 image x[H, W, C] and weights w[KH*KW*C, N] -> [OH, OW, N].

    `kernel` is (KH, KW), `padding` (top, bottom, left, right); stride and dilation hold for both axes. Raises
    ValueError for weights that do not fit the kernel and for an empty output.
    """
    top, bottom, left, right = padding
    height, width, channels = x.shape
    padded = np.zeros((height + top + bottom, (width + left + right) * channels), np.float32)
    fp16.widen(np.array(x, order="C").reshape(height, width * channels), padded, top, left * channels, True)
    image = padded.reshape(len(padded), width + left + right, channels)
    windows = _windows(image, kernel, stride, dilation)
    out = np.empty((*windows.shape[:2], w.shape[1]), np.uint16)
    _convolve(fp16.dot_rows, windows, _widened(w, scaled=False), out)
    return out


def meconv_x8(
    x: Int8s, w: Int8s, kernel: tuple[int, int], stride: int, dilation: int, padding: tuple[int, int, int, int]
) -> Int32s:
    """`meconv.x8.mm`: `meconv` for int8 operands -> int32, wrapping."""
    top, bottom, left, right = padding
    windows = _windows(np.pad(x, ((top, bottom), (left, right), (0, 0))), kernel, stride, dilation)
    out = np.empty((*windows.shape[:2], w.shape[1]), np.int32)
    _convolve(fp16.dot_rows_x8, windows, np.array(w, order="C"), out)
    return out


def meconv_hf_x8(
    x: Int8s,
    w: Int8s,
    kernel: tuple[int, int],
    stride: int,
    dilation: int,
    padding: tuple[int, int, int, int],
    coefficient: int,
) -> Bits:
    """`meconv.hf.x8.mm`: `meconv_x8` times the fp16 `coefficient` (bits), rounded once."""
    return mul_x32(meconv_x8(x, w, kernel, stride, dilation, padding), np.uint16(coefficient))


def _rows(a: Any, b: Any) -> Any:
    """The matrix a[M, K] as windows [M, 1, 1, 1, K] of a convolution. Raises ValueError if b does not have K rows."""
    if a.shape[1] != b.shape[0]:
        raise ValueError(f"matrix product: A has {a.shape[1]} columns, B has {b.shape[0]} rows")
    return a[:, None, None, None, :]


def _widened(a: Bits, scaled: bool) -> Floats:
    out = np.empty(a.shape, np.float32)
    fp16.widen(np.array(a, order="C"), out, 0, 0, scaled)
    return out


def _windows(image: Any, kernel: tuple[int, int], stride: int, dilation: int) -> Any:
    """A view [OH, OW, KH, KW, C] of the padded image[H, W, C]: the taps of every output pixel."""
    height, width, channels = image.shape
    rows = output_size(height, 0, kernel[0], stride, dilation)
    columns = output_size(width, 0, kernel[1], stride, dilation)
    if rows <= 0 or columns <= 0:
        raise ValueError(f"convolution: no output, padded input {height}x{width}, kernel {kernel}, dilation {dilation}")
    down, along, deep = image.strides
    return np.lib.stride_tricks.as_strided(
        image,
        (rows, columns, *kernel, channels),
        (down * stride, along * stride, down * dilation, along * dilation, deep),
        writeable=False,
    )


def _convolve(kernel: Kernel, windows: Any, weights: Any, out: Any) -> None:
    """Multiply windows[OH, OW, KH, KW, C] by weights[K, N] into out[OH, OW, N], a few output rows at a time.

    The kernels are fast along their last axis: the output channels, or the pixels where there are few channels.
    """
    depth = int(np.prod(windows.shape[2:]))
    if weights.shape[0] != depth:
        raise ValueError(f"convolution: kernel and channels need {depth} weight rows, there are {weights.shape[0]}")
    rows, columns, channels = out.shape
    step = max(1, _PATCH_ELEMENTS // (columns * depth))
    for first in range(0, rows, step):
        some = windows[first : first + step]
        target = out[first : first + step].reshape(-1, channels)
        if channels >= _VECTOR or len(target) <= channels:
            kernel(np.array(some, order="C").reshape(-1, depth), weights, target)
        else:
            turned = np.empty((channels, len(target)), out.dtype)
            patches = np.array(some.transpose(2, 3, 4, 0, 1), order="C").reshape(depth, -1)
            kernel(np.array(weights.T, order="C"), patches, turned)
            target[:] = turned.T
