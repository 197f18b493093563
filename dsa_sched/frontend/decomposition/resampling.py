"""Resize by one constant matrix for each axis that is resized: cubic, and linear or nearest where no kernel does it.

    Resize(x [n, c, h, w], cubic)  -->  (A [H, h] x x) x B [w, W]        nearest: Gather by constant indices

The coordinates are ONNX's; they are computed in float32 as onnxruntime does, so that both round 0.5 the same way. Every
coordinate transformation is known. Rules of images take linear and nearest along the spatial axes
(`rules/rules_window.py`). The rest comes here, except antialiased reduction, which is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from dsa_sched.frontend.network.chain import Chain
from dsa_sched.frontend.network.network import FLOATING, Network, Node
from dsa_sched.frontend.network.terms import number

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.float32]

OF_IMAGES = ("asymmetric", "half_pixel", "pytorch_half_pixel", "align_corners")
"""Coordinate transformations that kernels of images know."""


@dataclass(frozen=True, slots=True)
class _Axis:
    """One axis: its elements before and after, the factor between them, and the part of it that is read
    (`tf_crop_and_resize` alone).
    """

    extent: int
    wanted: int
    scale: float
    begin: float = 0.0
    end: float = 1.0

    @property
    def stays(self) -> bool:
        """Whether every element keeps its place, where all of the axis is read."""
        return (self.extent, self.scale) == (self.wanted, 1.0)


MOST_NUMBERS = 1 << 25
"""Of indices, or of a matrix of shares, that one axis is resized by: the extents come from a stranger's file."""


def resample(chain: Chain, node: Node) -> bool:
    """Rule of the decomposition; False for nodes left to the rule of images, and for those that cannot be resized."""
    x, shape, wanted = node.inputs[0], chain.shape(node.inputs[0]), chain.shape(node.outputs[0])
    mode, way = mode_of(chain.network, node)
    if chain.network.values[node.outputs[0]].dtype not in FLOATING or node.integer("antialias", 0):
        return False
    if mode != "cubic" and way in OF_IMAGES and shape[:2] == wanted[:2]:
        return False
    axes = _axes(chain.network, node, shape, wanted)
    if axes is None:
        return False
    cropped = way == "tf_crop_and_resize"
    resized = [(at, axis) for at, axis in enumerate(axes) if cropped or not axis.stays]
    if any(axis.wanted * (1 if mode == "nearest" else axis.extent) > MOST_NUMBERS for _, axis in resized):
        return False
    for at, axis in resized:
        x = _along(chain, node, x, at, axis, mode, way)
    if x == node.inputs[0]:
        chain.add("Identity", x)
    elif chain.nodes[-1].outputs != (x,) or chain.shape(x) != wanted:
        chain.add("Flatten", x, shape=wanted)
    return True


def mode_of(network: Network, node: Node) -> tuple[str, str]:
    """The mode and the coordinate transformation, which operator sets before 11 do not choose."""
    mode = node.text("mode", "nearest").replace("bilinear", "linear")
    old = node.op_type == "Upsample" or network.opset < 11
    return mode, "asymmetric" if old else node.text("coordinate_transformation_mode", "half_pixel")


def factors(network: Network, node: Node, rank: int) -> tuple[float, ...]:
    """The factor of each axis where the file gives factors instead of extents, else nothing."""
    old = node.op_type == "Upsample" or network.opset < 11
    array = network.constants.get(node.input(1 if old else 2))
    attribute = node.setting("scales", ())
    listed = attribute if isinstance(attribute, tuple) else ()
    given = tuple(s for s in listed if isinstance(s, (int, float))) if array is None else array.reshape(-1).tolist()
    if not given:
        return ()
    found = [1.0] * rank
    for axis, factor in zip(node.integers("axes", tuple(range(rank))), given, strict=True):
        found[axis % rank] = float(factor)
    return tuple(found)


def _axes(network: Network, node: Node, shape: tuple[int, ...], wanted: tuple[int, ...]) -> tuple[_Axis, ...] | None:
    rank = len(shape)
    given = factors(network, node, rank)
    scales = given or tuple(after / before for before, after in zip(shape, wanted, strict=True))
    policy = node.text("keep_aspect_ratio_policy", "stretch")
    sizes = network.constants.get(node.input(3))
    listed = [axis % rank for axis in node.integers("axes", tuple(range(rank)))]
    if not given and policy != "stretch" and sizes is not None:
        ratios = [size / shape[axis] for axis, size in zip(listed, sizes.reshape(-1).tolist(), strict=True)]
        ratio = min(ratios) if policy == "not_larger" else max(ratios)
        scales = tuple(ratio if axis in listed else 1.0 for axis in range(rank))
    begins, ends = [0.0] * rank, [1.0] * rank
    if node.text("coordinate_transformation_mode", "") == "tf_crop_and_resize":
        roi = network.constants.get(node.input(1))
        if roi is None or roi.size != 2 * len(listed):
            return None
        for place, axis in enumerate(listed):
            begins[axis], ends[axis] = float(roi[place]), float(roi[len(listed) + place])
    along = zip(shape, wanted, scales, begins, ends, strict=True)
    return tuple(_Axis(*numbers) for numbers in along)


def _places(axis: _Axis, way: str) -> Places:
    """Place of each result among the elements."""
    place, scale = np.arange(axis.wanted, dtype=np.float32), np.float32(axis.scale)
    half, extent, wanted = np.float32(0.5), np.float32(axis.extent), np.float32(axis.wanted)
    single = axis.wanted == 1
    match way:
        case "asymmetric":
            return place / scale
        case "align_corners":
            return place * (np.float32(0.0) if single else (extent - 1) / (wanted - 1))
        case "pytorch_half_pixel" if single:
            return np.zeros(1, np.float32)
        case "tf_half_pixel_for_nn":
            return (place + half) / scale
        case "half_pixel_symmetric":
            middle = extent / 2
            return middle * (1 - wanted / (scale * extent)) + (place + half) / scale - half
        case "tf_crop_and_resize":
            begin, end = np.float32(axis.begin), np.float32(axis.end)
            if single:
                return np.full(1, half * (begin + end) * (extent - 1), np.float32)
            return begin * (extent - 1) + place * ((end - begin) * (extent - 1) / (wanted - 1))
    return (place + half) / scale - half


def _along(chain: Chain, node: Node, x: str, place: int, axis: _Axis, mode: str, way: str) -> str:
    """The value resized along one axis."""
    shape = chain.shape(x)
    wanted = (*shape[:place], axis.wanted, *shape[place + 1 :])
    places = _places(axis, way)
    outside = (places < 0) | (places > axis.extent - 1) if way == "tf_crop_and_resize" else np.zeros(len(places), bool)
    beyond = node.number("extrapolation_value", 0.0) if outside.any() else 0.0
    if mode == "nearest":
        chosen = _nearest(chain.network, node, places, axis)
        indices = chain.array(np.clip(chosen, 0, axis.extent - 1), number(0.0))
        y = chain.add("Gather", x, indices, shape=wanted, settings=(("axis", place),))
        if outside.any():
            y = chain.add("Mul", y, _column(chain, np.where(outside, 0.0, 1.0), place, len(shape)))
    else:
        matrix = _linear(places, axis.extent) if mode == "linear" else _cubic(node, places, axis.extent)
        matrix[outside] = 0.0
        y = _product(chain, x, place, matrix)
    if beyond:
        y = chain.add("Add", y, _column(chain, np.where(outside, beyond, 0.0), place, len(shape)))
    return y


def _column(chain: Chain, numbers: Floats, place: int, rank: int) -> str:
    return chain.array(numbers.reshape([-1 if axis == place else 1 for axis in range(rank)]), None)


def _nearest(network: Network, node: Node, places: Places, axis: _Axis) -> npt.NDArray[np.int64]:
    rounding = node.text("nearest_mode", "round_prefer_floor")
    if node.op_type == "Upsample" or network.opset < 11:
        rounding = "ceil" if axis.scale < 1 else "floor"
    half = np.float32(0.5)
    match rounding:
        case "floor":
            found = np.floor(places)
        case "ceil":
            found = np.ceil(places)
        case "round_prefer_ceil":
            found = np.floor(places + half)
        case _:
            found = np.ceil(places - half)
    return found.astype(np.int64)


def _linear(places: Places, extent: int) -> Floats:
    """One row for each result: the share of each element."""
    matrix = np.zeros((len(places), extent))
    held = np.clip(places.astype(np.float64), 0, extent - 1)
    low = np.floor(held).astype(np.int64)
    share = held - low
    rows = np.arange(len(places))
    np.add.at(matrix, (rows, low), 1 - share)
    np.add.at(matrix, (rows, np.minimum(low + 1, extent - 1)), share)
    return matrix


def _cubic(node: Node, places: Places, extent: int) -> Floats:
    """Four elements for each result, by the cubic convolution of parameter a; elements beyond the ends are those at the
    ends, or do not count."""
    a = node.number("cubic_coeff_a", -0.75)
    low = np.floor(places).astype(np.int64)
    share = (places - low.astype(np.float32)).astype(np.float64)
    near = np.array([share + 1, share, 1 - share, 2 - share])
    inner = ((a + 2) * near - (a + 3)) * near * near + 1
    outer = ((a * near - 5 * a) * near + 8 * a) * near - 4 * a
    weights = np.where(near <= 1, inner, outer)
    taps = low + np.arange(-1, 3)[:, None]
    if node.integer("exclude_outside", 0):
        weights = np.where((taps < 0) | (taps >= extent), 0.0, weights)
        weights = weights / weights.sum(axis=0)
    matrix = np.zeros((len(places), extent))
    np.add.at(matrix, (np.arange(len(places))[None, :], np.clip(taps, 0, extent - 1)), weights)
    return matrix


def _product(chain: Chain, x: str, place: int, matrix: Floats) -> str:
    """Product of the matrix with every line along an axis: from the right along the last axis, else from the left."""
    shape = chain.shape(x)
    wanted, extent = matrix.shape
    outer, inner = prod(shape[:place]), prod(shape[place + 1 :])
    result = (*shape[:place], wanted, *shape[place + 1 :])
    if inner == 1:
        y = chain.add(
            "MatMul", chain.reshaped(x, outer, extent), chain.array(matrix.T.copy(), None), shape=(outer, wanted)
        )
    else:
        flat = chain.reshaped(x, outer, extent, inner)
        y = chain.add("MatMul", chain.array(matrix, None), flat, shape=(outer, wanted, inner))
    return chain.reshaped(y, *result)
