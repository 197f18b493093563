"""Pooling layers as TVM's wheel compiles them: CUDA source of its default schedules, made without a GPU, and launches.

    largest: max_pool2d of halves        mean: halves to f32, avg_pool2d in f32 (padding not counted), rounded to halves

TVM sums a mean of halves in halves, so sums in f32 are asked for in the operator. TVM is imported inside functions: the
import takes a second.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from benchmarks.ptx_cases.products import worst
from codegen.cutlass.emission.nvcc import Compiler
from codegen.cutlass.ptx import GlobalMemory, Module, PtxLimits, launch, parameters, parse

__all__ = ["TvmPool", "compiled_pool", "tvm_pool_error"]

Array: TypeAlias = NDArray[Any]

WINDOW, STRIDE, PADDING = 3, 2, 1
PROTOTYPE: Final = re.compile(r"__global__ void \S+ (\w+)\(([^)]*)\);")


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel with the arrays of its parameters, in their order."""

    kernel: str
    grid: int
    block: int
    arrays: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TvmPool:
    """`sizes`: bytes of the arrays that kernels write, by name; the input is `x`."""

    shape: tuple[int, int, int, int]
    mean: bool
    module: Module
    launches: tuple[Launch, ...]
    sizes: dict[str, int]

    @property
    def result(self) -> str:
        """The array that the last kernel writes."""
        return tuple(self.sizes)[-1]


def _layer(shape: tuple[int, int, int, int], *, mean: bool) -> Any:
    """The layer as a Relax module."""
    from tvm import relax

    build = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float16"))
    window = {"pool_size": (WINDOW, WINDOW), "strides": (STRIDE, STRIDE), "padding": (PADDING, PADDING)}
    with build.function("main", [x]):
        with build.dataflow():
            if mean:
                wide = build.emit(relax.op.astype(x, "float32"))
                pooled = relax.op.nn.avg_pool2d(wide, **window, layout="NHWC", count_include_pad=False)
                last = build.emit_output(relax.op.astype(build.emit(pooled), "float16"))
            else:
                last = build.emit_output(relax.op.nn.max_pool2d(x, **window, layout="NHWC"))
        build.emit_func_output(last)
    return build.get()


def _threads(function: Any) -> dict[str, int]:
    """Blocks and threads of a scheduled function: the extents of its bound loops."""
    import tvm_ffi
    from tvm import tirx

    found: dict[str, int] = {}

    def visit(node: object) -> None:
        if isinstance(node, tirx.For) and node.thread_binding is not None:
            found[str(node.thread_binding.thread_tag)] = int(node.extent)

    tvm_ffi.structural_walk(function.body, visit)
    return found


def _cuda_source(module: Any, target: Any) -> str:
    """The CUDA source within what TVM compiles. Raises LookupError where there is none."""
    import tvm

    left = [tvm.compile(module, target).mod]
    while left:
        one = left.pop()
        if one.kind == "cuda":
            return str(one.inspect_source())
        left += list(one.imports)
    raise LookupError("TVM compiles no kernel for CUDA")


def compiled_pool(compiler: Compiler, shape: tuple[int, int, int, int], *, mean: bool) -> TvmPool:
    """The layer for images n x h x w x c of halves: TVM to CUDA source, nvcc to PTX."""
    import tvm
    from tvm import relax
    from tvm.relax.backend.cuda.pipeline import legalize_passes

    target = tvm.target.Target({"kind": "cuda", "arch": "sm_80"}, host="llvm")
    with target:
        scheduled = tvm.transform.Sequential(legalize_passes(target))(_layer(shape, mean=mean))
    source = _cuda_source(scheduled, target)
    prototypes = {
        name: tuple(part.split()[-1].removesuffix("_ptr") for part in given.split(","))
        for name, given in PROTOTYPE.findall(source)
    }
    launches, sizes = [], {}
    names: dict[Any, str] = {scheduled["main"].params[0]: "x"}
    called = [b for block in scheduled["main"].body.blocks for b in block.bindings if isinstance(b.value, relax.Call)]
    for number, binding in enumerate(called):
        function, given = binding.value.args
        result = names[binding.var] = f"array {number}"
        kind = binding.var.ty
        sizes[result] = int(np.prod([int(n) for n in kind.shape])) * np.dtype(str(kind.dtype)).itemsize
        arrays = (*(names[argument] for argument in given.fields), result)
        by_name = dict(zip((str(p.name) for p in scheduled[function].params), arrays, strict=True))
        name, threads = f"{function.name_hint}_kernel", _threads(scheduled[function])
        ordered = tuple(by_name[parameter] for parameter in prototypes[name])
        launches.append(Launch(name, threads["blockIdx.x"], threads["threadIdx.x"], ordered))
    text = compiler.ptx(source, "80", name="pool.cu")
    return TvmPool(shape, mean, parse(text), tuple(launches), sizes)


def tvm_pool_error(pool: TvmPool, seed: int, limits: PtxLimits | None = None) -> float:
    """The largest error in parts of what is allowed; NaN counts as infinite."""
    x = np.random.default_rng(seed).standard_normal(pool.shape).astype(np.float16)
    memory = GlobalMemory()
    places = {"x": memory.allocate(x, "x")}
    places |= {name: memory.allocate(size, name) for name, size in pool.sizes.items()}
    for one in pool.launches:
        given = parameters(pool.module.kernels[one.kernel], *(places[name] for name in one.arrays))
        launch(pool.module, one.kernel, (one.grid, 1, 1), (one.block, 1, 1), given, memory, seed, limits=limits)
    exact = _pooled(x, mean=pool.mean)
    allowed = 2.0**-11 * np.abs(exact) + 2.0**-20 if pool.mean else np.full(exact.shape, 2.0**-30)
    return worst(memory.load(places[pool.result], np.float16, exact.shape), exact, allowed)


def _pooled(x: Array, *, mean: bool) -> Array:
    """In float64; what lies outside of the image does not count."""
    n, h, w, c = x.shape
    p, q = ((size + 2 * PADDING - WINDOW) // STRIDE + 1 for size in (h, w))
    padded = np.full((n, h + 2 * PADDING, w + 2 * PADDING, c), np.nan)
    padded[:, PADDING:-PADDING, PADDING:-PADDING] = x
    windows = np.stack([
        padded[:, r : r + STRIDE * (p - 1) + 1 : STRIDE, s : s + STRIDE * (q - 1) + 1 : STRIDE]
        for r in range(WINDOW)
        for s in range(WINDOW)
    ])  # fmt: skip
    reduced: Array = np.nanmean(windows, axis=0) if mean else np.nanmax(windows, axis=0)
    return reduced
