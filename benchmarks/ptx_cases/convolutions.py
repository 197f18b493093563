"""CUTLASS's implicit-GEMM convolution for tests: its launch parameters, its inputs, and numpy's answer in float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from benchmarks.ptx_cases.printed_parameters import Given, printed_parameters
from codegen.cutlass.emission.nvcc import Compiler
from codegen.cutlass.ptx import GlobalMemory, Module, PtxLimits, Statistics, launch, parse

Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Shape:
    """Images n x h x w x c, k filters of r x s."""

    n: int
    h: int
    w: int
    c: int
    k: int
    r: int
    s: int
    padding: int
    stride: int

    @property
    def arguments(self) -> tuple[int, ...]:
        """In the order of the program that prints parameters."""
        return (self.n, self.h, self.w, self.c, self.k, self.r, self.s, self.padding, self.stride)

    @property
    def result(self) -> tuple[int, int, int, int]:
        """n x p x q x k."""
        p = (self.h + 2 * self.padding - self.r) // self.stride + 1
        q = (self.w + 2 * self.padding - self.s) // self.stride + 1
        return self.n, p, q, self.k


SHAPES = (
    Shape(1, 8, 8, 32, 64, 3, 3, 1, 1),
    Shape(2, 9, 11, 24, 40, 3, 3, 1, 2),  # ragged in every direction
    Shape(1, 14, 14, 64, 64, 1, 1, 0, 1),
    Shape(1, 14, 14, 64, 128, 1, 1, 0, 2),
    Shape(1, 17, 5, 8, 8, 3, 3, 1, 1),  # fewer channels than a step of K; odd image
    Shape(1, 16, 16, 8, 72, 7, 7, 3, 2),  # the first layer of a ResNet, three channels padded to eight
    Shape(3, 7, 7, 96, 16, 1, 1, 0, 1),
    Shape(1, 10, 9, 40, 24, 3, 1, 1, 1),  # not square; padding beyond the filter's width
    Shape(4, 6, 6, 64, 64, 3, 3, 0, 1),
)


@dataclass(frozen=True, slots=True)
class Conv2d:
    """The kernel, its text, and the program that prints parameters."""

    module: Module
    text: str
    program: bytes

    def parameters(self, shapes: tuple[Shape, ...]) -> list[Given]:
        """By shape, how the kernel is launched."""
        return printed_parameters(self.program, [number for shape in shapes for number in shape.arguments])


def conv2d_launches(compiler: Compiler, source: str) -> Conv2d:
    """Compiles kernel and program."""
    text = compiler.ptx(source, "80", cutlass=True, name="conv2d.cu")
    program = compiler.program("#define PARAMETERS\n" + source, cutlass=True, name="conv2d.cu")
    return Conv2d(parse(text), text, program)


@dataclass(frozen=True, slots=True)
class Problem:
    """Inputs as halves; `exact` is the result in float64, `allowed` how far a right kernel may be from it."""

    shape: Shape
    image: Array
    filters: Array
    bias: Array
    exact: Array
    allowed: Array


def problem(shape: Shape, seed: int) -> Problem:
    """Random inputs with results of about 1."""
    rng = np.random.default_rng(seed)
    depth = shape.r * shape.s * shape.c
    image = rng.standard_normal((shape.n, shape.h, shape.w, shape.c)).astype(np.float16)
    filters = (rng.standard_normal((shape.k, shape.r, shape.s, shape.c)) / depth**0.5).astype(np.float16)
    bias = rng.standard_normal(shape.k).astype(np.float16)
    wide = bias.astype(np.float64)
    exact = convolved(image, filters, shape) + wide
    magnitude = convolved(np.abs(image), np.abs(filters), shape) + np.abs(wide)
    return Problem(shape, image, filters, bias, np.maximum(exact, 0), bound(exact, magnitude, depth))


def convolved(image: Array, filters: Array, shape: Shape) -> Array:
    """The convolution in float64."""
    pad = shape.padding
    padded = np.pad(image.astype(np.float64), ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    _, p, q, _ = shape.result
    total: Array = np.zeros(shape.result)
    for r in range(shape.r):
        for s in range(shape.s):
            rows = slice(r, r + shape.stride * (p - 1) + 1, shape.stride)
            columns = slice(s, s + shape.stride * (q - 1) + 1, shape.stride)
            total += padded[:, rows, columns] @ filters[:, r, s].astype(np.float64).T
    return total


def bound(exact: Array, magnitude: Array, depth: int) -> Array:
    """|y - exact| of sums of `depth` products in f32, rounded once to half; `magnitude` is the sum of |a b|."""
    allowed: Array = 2.0**-11 * np.abs(exact) + 2.0**-25 + depth * 2.0**-23 * magnitude
    return allowed


def run_conv2d(
    conv: Conv2d,
    given: Given,
    case: Problem,
    seed: int = 0,
    limits: PtxLimits | None = None,
    module: Module | None = None,
) -> tuple[Array, Statistics]:
    """The kernel's result (halves) for one problem."""
    memory = GlobalMemory()
    size = 2 * int(np.prod(case.shape.result))
    places = (
        memory.allocate(case.image, "image"),
        memory.allocate(case.filters, "filters"),
        memory.allocate(case.bias, "bias"),
        memory.allocate(size, "result"),
    )
    done = launch(
        module or conv.module, "conv2d", given.grid, (given.threads, 1, 1), given.at(places), memory, seed,
        shared_bytes=given.shared_bytes, limits=limits,
    )  # fmt: skip
    return memory.load(places[3], np.float16, case.shape.result), done
