"""Networks with QuantizeLinear and DequantizeLinear as integer products and arithmetic on scales.

    DQ(x), DQ(w), DQ(b) -> Conv -> Relu -> Q(y)   -->   IntegerConv(x, w, scale, bias) -> Relu -> Narrow
    DQ(a), DQ(b) -> Add -> Q(y)                   -->   Widen(a) * scale, AddScaled(b) -> Narrow
    DQ(x) -> MaxPool -> Q(y), of one grid         -->   Widen -> MaxPool -> Narrow, nothing rounded
    x, DQ(w) -> MatMul -> y                       -->   IntegerMatMul(x, w, scale), where w stays int8 (`packing.py`)
    DQ(x) -> Softmax -> Q(y)                      -->   Widen * scale -> Softmax -> * 1 / scale -> Narrow

Between its product and `Narrow` a layer is in units of its output: number = scale * (unit - zero point), so that a
rounding to the nearest integer is all that is left to do. Where nothing quantises the result, units are the file's
numbers. A value of the file that we have in units says so by its `Origin`. What a device cannot do on integers, it does
on floating-point numbers between conversions; integers of eight bits are exact there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
import onnx

from dsa_sched.frontend.network.chain import Chain
from dsa_sched.frontend.network.constant_folding import fold_rest
from dsa_sched.frontend.network.draft import Draft
from dsa_sched.frontend.network.network import (
    ADD_SCALED,
    INTEGER_CONV,
    INTEGER_MATMUL,
    NARROW,
    WIDEN,
    Network,
    Node,
    Origin,
    Setting,
    Value,
)
from dsa_sched.frontend.network.queries import bounds_of, reader_of
from dsa_sched.frontend.network.refusals import Packs
from dsa_sched.frontend.network.terms import number
from dsa_sched.frontend.network.traced import TracedArray
from dsa_sched.frontend.quantised.grids import (
    DEQUANTISE,
    LEAST,
    MOST,
    OFFSETS,
    QUANTISE,
    Floats,
    Grid,
    dequantised,
    grid_of,
    only_numbers,
)
from dsa_sched.frontend.quantised.held import (
    AVERAGES,
    CUT,
    EXACT_MOVES,
    MAXIMA,
    NEAREST,
    REARRANGED,
    HeldIntegers,
    Rounded,
    channel_extent,
    feature_maps,
)
from dsa_sched.frontend.quantised.packing import PACKED, UNPACKED, packing_of
from dsa_sched.frontend.quantised.products import (
    OF_NUMBERS,
    IntegerProduct,
    Shape,
    average_of,
    of_numbers_because,
    product_of,
)
from partitioner.ir.wants import Wants

VANISHING = 1 / 64
"""Error in units below which a factor may lose digits."""

LOST_OF_BIAS = 1 / 16
"""Units that the fp16 number of a bias may be off: twice what rounding the sum loses at the end of the integers' range.
"""

FLOAT, INT8 = int(onnx.TensorProto.FLOAT), int(onnx.TensorProto.INT8)


def quantised(network: Network, wants: Wants, packing: Packs | None = None) -> Network:
    """The network without nodes that dequantise constants or compute with such alone, and, for a target that has
    kernels of int8, without all others that quantise or dequantise, as far as their grids are known. `packing` decides
    whether weights that meet values in floating point stay int8; None means that none do."""
    if not any(node.op_type in (QUANTISE, DEQUANTISE) for node in network.nodes):
        return network
    rewritten = _Rewrite(network, wants, packing).rewritten() if wants.int8 else _with_constants(network)
    rest = rewritten.pruned()
    return fold_rest(rest, frozenset(node.name for node in rest.nodes if only_numbers(rest, node)))


def _with_constants(network: Network) -> Network:
    draft = Draft(network)
    for node in network.nodes:
        if node.op_type == DEQUANTISE and node.inputs[0] in network.constants and (grid := grid_of(network, node)):
            _store_dequantised(draft, node, grid)
    return draft.finished()


def _store_dequantised(draft: Draft, node: Node, grid: Grid) -> None:
    """The numbers of constant integers, as a constant under the name that they have in the file."""
    numbers = dequantised(draft.network, node, grid)
    with np.errstate(over="ignore"):  # beyond fp32 they are infinite, as in a runtime
        draft.store(node.outputs[0], replace(numbers, array=numbers.array.astype(np.float32)))
    draft.exchange(node)


@dataclass(frozen=True, slots=True)
class Requantising:
    """What follows a value until it is quantised: the sum with integers on another grid, if there is one, its bounds by
    activations, and the grid of its units. `halved` says that half a unit is added, so that truncation rounds to
    nearest: all results are at least zero."""

    low: float
    high: float
    grid: Grid
    after: tuple[str, ...]
    """Results of the activations."""

    total: str = ""
    """The sum, of the value and of integers on the grid `added`."""
    added: Grid | None = None
    even: bool = False
    """Whether rounding is to the nearest with ties to even, which takes no half."""

    @property
    def halved(self) -> bool:
        return not self.even and self.grid.centre == 0 and self.low == 0.0

    @property
    def middle(self) -> int:
        """The integer, counted from the zero point, that is zero in units: fp16 has most digits there. Most values lie
        between the zero point and the middle of all integers; with an upper bound they fill the range."""
        return -self.grid.centre if np.isfinite(self.high) else -self.grid.centre // 2

    @property
    def rounded(self) -> Rounded:
        """How a value in units becomes an integer."""
        return CUT if self.halved else Rounded("nearest", self.grid.centre + self.middle)

    def units(self, number: float) -> float:
        """A number of the file in units."""
        return number / self.grid.step - self.middle + 0.5 * self.halved

    @property
    def shift(self) -> float:
        """Units of zero before the integers are added."""
        centre = self.added.centre * self.added.step / self.grid.step if self.added else 0.0
        return self.units(0.0) - centre


@dataclass(frozen=True, slots=True)
class Units:
    """A value in units of the grid that quantises it, with that of the number zero, and how it becomes an integer."""

    name: str
    zero: float
    rounding: Rounded


class _Rewrite:
    def __init__(self, network: Network, wants: Wants, packing: Packs | None) -> None:
        self.wants, self.packing = wants, packing
        self.network, self.draft = network, Draft(network)
        self.maps = feature_maps(network)
        self.held: dict[str, HeldIntegers] = {}
        """Integers of the file -> integers of the device; the grid's scale is one."""
        self.sources: dict[str, HeldIntegers] = {}
        """Numbers of the file that are linear in integers."""
        self.units: dict[str, Units] = {}
        self.waiting: dict[str, tuple[str, Requantising]] = {}
        """Values in units to which integers are to be added."""
        self.absorbed: set[str] = set()
        """Results of nodes that others compute too."""
        self.narrowed: dict[str, str] = {}
        self.selected: set[str] = set()
        """Values of int8 among which operators have selected, or which they have moved."""
        self.numbers: set[str] = set()

    def rewritten(self) -> Network:
        for name in self.network.inputs:
            self._input(name)
        for node in self.network.nodes:
            self._node(node)
        return replace(self.draft.finished(), numbers=frozenset(self.numbers))

    # Nodes

    def _node(self, node: Node) -> None:
        chain = self.draft.chain(node, FLOAT)
        if node.outputs[0] in self.absorbed:
            self.draft.exchange(node)
            return
        match node.op_type:
            case "QuantizeLinear":
                done = self._quantise(chain, node)
            case "DequantizeLinear":
                done = self._dequantise(chain, node)
            case "Conv" | "Gemm" | "MatMul":
                done = self._product(chain, node)
            case "Add" | "Sum" if len(node.inputs) == 2:
                done = self._sum(chain, node)
            case "AveragePool" | "GlobalAveragePool":
                done = self._average(chain, node)
            case _ if node.outputs[0] in self.units:
                done = True  # an activation or a pool that its operand's node has written
            case _:
                done = self._move_integers(chain, node)
        if not done and chain.nodes:  # integers that were made in vain, which others may read
            chain.nodes.append(node)
        if chain.nodes or done:
            self.draft.put(chain, apart=True)

    def _input(self, name: str) -> None:
        """Integers that enter are held as floats, if nothing but dequantising and moving is done with them."""
        dtype = self.network.values[name].dtype
        readers = self.network.readers.get(name, ())
        if dtype in OFFSETS and readers and all(node.op_type in EXACT_MOVES | {DEQUANTISE} for node in readers):
            self.numbers.add(name)
            self.held[name] = self._of_file(name, "", dtype)

    def _of_file(self, floats: str, narrow: str, dtype: int) -> HeldIntegers:
        one = TracedArray.of(1.0).reshape(1)
        return HeldIntegers(floats, narrow, Grid(one, np.zeros(1, np.int64), None, OFFSETS[dtype]))

    def _quantise(self, chain: Chain, node: Node) -> bool:
        x, q = node.inputs[0], node.outputs[0]
        grid, shape = grid_of(self.network, node), self.network.shape(q)
        if grid is None or x in self.network.constants:
            return False
        rounding, units, source = NEAREST, self.units.get(x), self._source(chain, x)
        if units is not None and self._pooled(chain, node, units, grid):
            return True
        if units is not None:
            name, rounding = units.name, units.rounding
        elif source is not None and source.exact and source.grid.same(grid):
            name, rounding = source.floats, CUT
        elif source is not None and grid.uniform:
            name = self._shifted(chain, source.floats, -float(source.grid.centre))
            name, rounding = self._scaled(chain, name, source.grid.scale / grid.scale), Rounded("nearest", grid.centre)
        else:
            name = self._scaled(chain, x, _along(TracedArray.of(1.0) / grid.scale, grid, shape))
            zero = TracedArray(grid.zero.astype(np.float64), number(0))
            if grid.uniform:
                rounding = Rounded("nearest", grid.centre)
            else:
                name = self._add(chain, "Add", name, self._constant(chain, _along(zero, grid, shape)))
        dtype = INT8 if grid.offset == 0 else int(onnx.TensorProto.UINT8)
        if channel_extent(shape, q in self.maps) % self.wants.int8_unit == 0:
            free = grid.offset == 0 and q not in self.network.outputs
            narrow = self._narrow(chain, name, rounding, q if free else f"{q}::int8")
            if not free or narrow in self.selected:
                self._says(narrow, Origin(q, np.ones(1), np.full(1, float(grid.offset))))
            self.held[q] = self._of_file("", narrow, dtype)
        else:
            integral = rounding == CUT and units is None
            held = self._of_file(name if integral else "", "", dtype)
            self.held[q] = held if integral else replace(held, raw=name, rounding=rounding)
        self._leaves(chain, q, grid.offset)
        return True

    def _leaves(self, chain: Chain, q: str, offset: int) -> None:
        """Integers that leave the network leave it as floats, and as in the file."""
        if q in self.network.outputs:
            self.numbers.add(q)
            floats = self._floats(chain, q)
            chain.nodes.append(Node(f"{chain.node.name}::leaves", "Add", (floats, chain.number(float(offset))), (q,)))

    def _dequantise(self, chain: Chain, node: Node) -> bool:
        q, y = node.inputs[0], node.outputs[0]
        grid = grid_of(self.network, node)
        if grid is None:
            return False
        if q in self.network.constants:
            _store_dequantised(self.draft, node, grid)
            return False
        if q not in self.held:
            return False
        floats = self._floats(chain, q)
        self.sources[y] = replace(self.held[q], grid=grid)
        shape = self.network.shape(y)
        if grid.uniform:
            less = self._shifted(chain, floats, -float(grid.centre))
        else:
            zero = TracedArray(-grid.zero.astype(np.float64), number(0))
            less = self._add(chain, "Add", floats, self._constant(chain, _along(zero, grid, shape)))
        scale = self._constant(chain, _along(grid.scale, grid, shape))
        chain.nodes.append(Node(node.name, "Mul", (less, scale), (y,)))
        return True

    def _product(self, chain: Chain, node: Node) -> bool:
        """Conv, Gemm or MatMul of integers."""
        product = product_of(self.network, node, self.wants)
        left = self._source(chain, node.inputs[0])
        if product is None:
            return False
        if left is None or not left.exact or not left.grid.uniform:
            return self._by_weights(chain, node, product)
        right = None
        if product.weights is None:
            right = self._source(chain, node.inputs[1])
            if right is None:
                return False
            if reason := of_numbers_because(left.grid, right, self.network.shape(node.inputs[1]), self.wants.int8_unit):
                self.draft.decide(node, OF_NUMBERS, reason)
                return False
        y = node.outputs[0]
        if node.op_type == "MatMul" and product.weights is not None and (found := self._bias_after(y, product)):
            product, y = found
            self.absorbed.add(y)
        return self._write(chain, node, y, product, left, right, self._claim(y))

    def _by_weights(self, chain: Chain, node: Node, product: IntegerProduct) -> bool:
        """Conv, Gemm or MatMul of values in floating point by weights that stay int8."""
        if self.packing is None or product.weights is None:
            return False
        y, channels = node.outputs[0], product.channels
        shape = self.network.shape(y)
        elements, rows = prod(self.network.shape(node.inputs[0])), prod(shape) // channels
        packing = packing_of(product, elements, rows, self.network.rounding, self.packing)
        self.draft.decide(node, PACKED if packing.packed else UNPACKED, packing.reason)
        if not packing.packed:
            return False
        if node.op_type == "MatMul" and (found := self._bias_after(y, product)):
            product, y = found
            self.absorbed.add(y)
        own = self.network.shape(node.inputs[0])
        x, read, made = node.inputs[0], product.operand_shape(own), product.operand_shape(shape)
        if read != own:
            x = chain.add("Reshape", x, shape=read)
        assert product.weights is not None
        operands = [x, chain.store(product.over_images(product.weights), "weights")]
        operands.append(chain.store(product.scale.broadcast(channels), "scale"))
        if product.bias is not None:
            operands.append(chain.store(product.bias, "bias"))
        op_type, name = INTEGER_CONV if product.is_conv else INTEGER_MATMUL, y if made == shape else f"{y}::product"
        self._emit(chain, op_type, tuple(operands), name, made, product.convolution, node.name)
        if name != y:
            self._emit(chain, "Reshape", (name,), y, shape)
        return True

    def _bias_after(self, y: str, product: IntegerProduct) -> tuple[IntegerProduct, str] | None:
        """A product with the constant, one number per column, that is added to its result, and the sum's name."""
        reader = reader_of(self.network, y, "Add")
        other = next((name for name in reader.inputs if name != y), "") if reader else ""
        if reader is None or other not in self.network.constants:
            return None
        bias = self.network.traced(other)
        if bias.array.size != product.channels or bias.shape[-1:] != (product.channels,):
            return None
        if self.network.known_shape(reader.outputs[0]) != self.network.known_shape(y):
            return None
        return replace(product, bias=bias.reshape(-1)), reader.outputs[0]

    def _write(
        self,
        chain: Chain,
        node: Node,
        y: str,
        product: IntegerProduct,
        left: HeldIntegers,
        right: HeldIntegers | None,
        claim: Requantising | None,
    ) -> bool:
        shape, rounding = self.network.shape(y), self.network.rounding
        step = claim.grid.scale if claim else TracedArray.of(1.0).reshape(1)
        scale = (left.grid.scale * (right.grid.scale if right else product.scale) / step).broadcast(product.channels)
        larger = self._larger(product, scale.float64, claim is not None)
        scale = scale * TracedArray.of(larger) if larger > 1 else scale
        shift = TracedArray.of(claim.shift if claim else 0.0)
        if product.bias is not None:
            shift = product.bias / step + shift
        shift = shift * TracedArray.of(larger)
        if self.wants.sums_of_integers:
            shift = shift / scale
            if left.grid.centre:
                shift = shift - TracedArray.of(left.grid.centre) * product.sums
        elif left.grid.centre:
            zeros = TracedArray.of(left.grid.centre) * product.sums * scale.rounded(rounding)
            if claim is None or float(np.abs(zeros.float64).max()) > MOST * larger:
                product = product.with_zeros()
            shift = shift if product.constants else shift - zeros
        operands = [self._operand(chain, product, left)]
        if right is not None or product.weights is None:
            assert right is not None
            operands.append(self._integers(chain, right))
        else:
            operands.append(chain.store(product.all_weights(), "weights"))
        one = float(np.ptp(scale.array)) == 0.0  # the matrix engine itself multiplies by one factor
        factor = chain.store(scale.take([0]) if one else scale.pad(product.added), "scale")
        operands.append(factor)
        shift = shift.broadcast(product.channels)
        kept = shift.integral() if self.wants.sums_of_integers else shift.rounded(rounding)
        small = shift - kept  # a bias that zero points make large loses what decides the nearest integer
        if np.any(shift.array):
            operands.append(chain.store(kept.pad(product.added), "bias"))
        wide, plain = product.result_shapes(shape)
        op_type, settings = INTEGER_CONV if product.is_conv else INTEGER_MATMUL, product.settings(left.grid.centre)
        made = self._emit(chain, op_type, tuple(operands), f"{y}::product", wide, settings, node.name)
        if product.rest is not None and not product.is_wide:
            rest = (operands[0], chain.store(product.stored(product.rest), "further"), factor)
            more = self._emit(chain, op_type, rest, f"{y}::rest", wide, settings)
            made = self._add(chain, "Add", made, more)
        if claim is not None and not self.wants.sums_of_integers and float(np.abs(small.array).max()) > LOST_OF_BIAS:
            spread = (-1, *(1,) * (len(wide) - 2)) if product.is_conv else (-1,)
            made = self._add(chain, "Add", made, chain.store(small.pad(product.added).reshape(*spread), "small"))
        if wide != plain:
            axis = product.channel_axis(len(plain))
            made = chain.part(made, axis, 0, plain[axis])
        if plain != shape:
            made = chain.add("Reshape", made, shape=shape)
        if larger > 1:
            made = self._add(chain, "Mul", made, chain.number(1 / larger))
        name = f"{y}::units" if claim else y
        chain.nodes[-1] = replace(chain.nodes[-1], outputs=(name,))
        chain.values[name] = chain.values.pop(made)
        if claim is not None and claim.total:
            origin = np.full(1, claim.grid.step), np.full(1, -claim.grid.step * claim.shift)
            self._says(name, Origin(y, *origin))
            self.waiting[y] = name, claim
        elif claim is not None:
            self._activate(chain, y, name, claim)
        return True

    def _average(self, chain: Chain, node: Node) -> bool:
        """A mean is a sum of integers, each channel by itself, times a scale."""
        product = average_of(self.network, node, self.wants)
        source = self._source(chain, node.inputs[0])
        if product is None or source is None or not source.exact or not source.grid.uniform:
            return False
        y = node.outputs[0]
        return self._write(chain, node, y, product, source, None, self._claim(y))

    def _larger(self, product: IntegerProduct, scale: Floats, saturates: bool) -> float:
        """Power of two by which a product is made larger before it is made smaller again, because factors below the
        smallest normal number lose digits: only as far as that matters, and as the range allows."""
        rounding, most, scale = self.network.rounding, product.most, np.abs(scale)
        lost = (scale < rounding.smallest_normal) & (most * rounding.smallest > VANISHING)
        if not lost.any():
            return 1.0
        wanted = 2.0 ** np.ceil(np.log2(rounding.smallest_normal / scale[lost].min()))
        largest = 2.0 * MOST if saturates else float((most * scale).max())
        return float(max(1.0, min(wanted, 2.0 ** np.floor(np.log2(rounding.largest_power / largest)))))

    def _sum(self, chain: Chain, node: Node) -> bool:
        """A sum of integers on two grids, or of a value in units and integers."""
        for name, other in (node.inputs, node.inputs[::-1]):
            if name in self.waiting:
                units, claim = self.waiting[name]
                source = self._source(chain, other)
                assert source is not None  # the claim was made because of it
                ratio = source.grid.scale / claim.grid.scale
                self._activate(chain, node.outputs[0], self._plus(chain, units, source, ratio), claim)
                return True
        return self._sum_of_integers(chain, node)

    def _plus(self, chain: Chain, name: str, source: HeldIntegers, ratio: TracedArray) -> str:
        """A value plus integers times a ratio, which may be spread over it."""
        if source.narrow and chain.shape(source.narrow) == chain.shape(name):
            settings = (("scale", float(ratio.float64[0])),)
            return self._add(chain, ADD_SCALED, name, source.narrow, settings=settings)
        return self._add(chain, "Add", name, self._scaled(chain, source.floats, ratio))

    def _sum_of_integers(self, chain: Chain, node: Node) -> bool:
        claim, shape = self._claim(node.outputs[0]), self.network.shape(node.outputs[0])
        sources = [self._source(chain, name) for name in node.inputs]
        uniform = all(source is not None and source.grid.uniform for source in sources)
        if claim is None or claim.total or not uniform:
            return False
        whole = [source for source in sources if source and chain.shape(source.floats) == shape]
        if not whole:
            return False
        pair = sorted((source for source in sources if source), key=lambda source: source not in whole)
        first, second = pair if pair[1].narrow or pair[1] not in whole else pair[::-1]
        ratios = [source.grid.scale / claim.grid.scale for source in (first, second)]
        name = self._plus(chain, self._scaled(chain, first.floats, ratios[0]), second, ratios[1])
        centres = sum(s.grid.centre * float(r.float64[0]) for s, r in zip((first, second), ratios, strict=True))
        name = self._shifted(chain, name, claim.units(0.0) - centres)
        self._activate(chain, node.outputs[0], name, claim)
        return True

    def _activate(self, chain: Chain, y: str, name: str, claim: Requantising) -> None:
        """The bounds of the activations after a value in units, where saturation does not hold them."""
        shift = -claim.grid.step * claim.units(0.0)
        origin = np.full(1, claim.grid.step), np.full(1, shift)
        self._says(name, Origin(y, *origin))
        low, high = claim.units(claim.low), claim.units(claim.high)
        zero = claim.rounded.centre
        bounded_low, bounded_high = low + zero > LEAST, high + zero < MOST
        if bounded_low and bounded_high:
            name = self._add(chain, "Clip", name, settings=(("max", high), ("min", low)))
        elif bounded_low:
            bound = (chain.number(low),) if low else ()
            name = self._add(chain, "Max" if bound else "Relu", name, *bound)
        elif bounded_high:
            name = self._add(chain, "Min", name, chain.number(high))
        if claim.after and (bounded_low or bounded_high):
            self._says(name, Origin(claim.after[-1], *origin))
        for after in (y, *claim.after):
            self.units[after] = Units(name, claim.units(0.0), claim.rounded)

    def _claim(self, y: str) -> Requantising | None:
        """The activations and the grid that follow a value which nothing else reads."""
        name, low, high, after = y, -np.inf, np.inf, list[str]()
        total, added = "", None
        while (reader := reader_of(self.network, name)) is not None:
            if reader.op_type == QUANTISE and reader.inputs[0] == name:
                grid = grid_of(self.network, reader)
                known = grid is not None and grid.uniform
                even = self.wants.sums_of_integers
                return Requantising(low, high, grid, tuple(after), total, added, even) if grid and known else None
            if reader.op_type in ("Add", "Sum") and not total and not after:
                added = self._grid_of_other(reader, name)
                if added is None:
                    return None
                name = total = reader.outputs[0]
                continue
            bounds: tuple[float | None, float | None] = (0.0, np.inf) if reader.op_type == "Relu" else (None, None)
            if reader.op_type == "Clip" and reader.inputs[0] == name:
                bounds = bounds_of(self.network, reader)
            if bounds[0] is None or bounds[1] is None:
                return None
            low, high = min(max(low, bounds[0]), bounds[1]), max(min(high, bounds[1]), bounds[0])
            name = reader.outputs[0]
            after.append(name)
        return None

    def _grid_of_other(self, node: Node, name: str) -> Grid | None:
        """The grid of the other operand of a sum, if that is dequantised integers of the same shape."""
        others = [other for other in node.inputs if other != name]
        made = self.network.producer.get(others[0]) if len(others) == 1 and len(node.inputs) == 2 else None
        if made is None or made.op_type != DEQUANTISE:
            return None
        quantise = self.network.producer.get(made.inputs[0])
        known = (
            quantise is not None and quantise.op_type == QUANTISE and quantise.inputs[0] not in self.network.constants
        )
        if made.inputs[0] not in self.held and not (known and quantise and grid_of(self.network, quantise)):
            return None
        grid, shapes = grid_of(self.network, made), {self.network.known_shape(n) for n in (name, *others)}
        return grid if grid is not None and grid.uniform and len(shapes) == 1 else None

    def _pooled(self, chain: Chain, node: Node, units: Units, grid: Grid) -> bool:
        """Maxima of quantised values are the quantised maxima: where nothing else reads these integers, the pool comes
        first, and is in units."""
        q = node.outputs[0]
        dequantise = reader_of(self.network, q, DEQUANTISE)
        pool = reader_of(self.network, dequantise.outputs[0], "MaxPool", "GlobalMaxPool") if dequantise else None
        last = reader_of(self.network, pool.outputs[0], QUANTISE) if pool else None
        if dequantise is None or pool is None or last is None or any(pool.outputs[1:]):
            return False
        if pool.op_type in self.wants.int8_moves:
            return False
        grids = [grid_of(self.network, each) for each in (dequantise, last)]
        if not all(each is not None and each.same(grid) for each in grids):
            return False
        made = self._moved(chain, pool, units.name, f"{pool.outputs[0]}::units")
        self._says(made, Origin(pool.outputs[0], np.full(1, grid.step), np.full(1, -grid.step * units.zero)))
        self.units[pool.outputs[0]] = replace(units, name=made)
        self.absorbed |= {dequantise.outputs[0], pool.outputs[0]}
        return True

    def _move_integers(self, chain: Chain, node: Node) -> bool:
        """An operator that rearranges integers of the file: it rearranges them as floats."""
        moved = node.inputs if node.op_type == "Concat" else node.inputs[:1]
        outputs = [name for name in node.outputs if name]
        dtype = self.network.values[outputs[0]].dtype
        if node.op_type not in REARRANGED or dtype not in OFFSETS or not self._are_integers(moved):
            return False
        operands = [*(self._numbers(chain, name, dtype) for name in moved), *node.inputs[len(moved) :]]
        if node.op_type == "Pad" and dict(node.settings).get("mode", "constant") == "constant":
            fill = self.network.constants.get(node.input(2)) if node.input(2) else np.zeros(1)
            if fill is None:
                return False
            number = chain.number(float(fill.reshape(-1)[0]) - OFFSETS[dtype])
            operands = [*operands[:2], number, *operands[3:]]
        floats = tuple(f"{name}::floats" if name else "" for name in node.outputs)
        chain.nodes.append(Node(f"{chain.node.name}::{len(chain.nodes)}", node.op_type, tuple(operands), floats,
                                node.settings))  # fmt: skip
        for q in outputs:
            chain.values[f"{q}::floats"] = Value(self.network.shape(q), FLOAT)
            self._says(f"{q}::floats", Origin(q, np.ones(1), np.full(1, float(OFFSETS[dtype]))))
            self.held[q] = self._of_file(f"{q}::floats", "", dtype)
            self._leaves(chain, q, OFFSETS[dtype])
        return True

    def _are_integers(self, names: Sequence[str]) -> bool:
        """Whether all of these are held integers or constant ones."""
        return all(name in self.held or name in self.network.constants for name in names)

    def _numbers(self, chain: Chain, name: str, dtype: int) -> str:
        """Integers of a type of the file, computed or constant, as floats."""
        if name in self.held:
            return self._floats(chain, name)
        return chain.store(self.network.traced(name) - TracedArray.of(float(OFFSETS[dtype])))

    # Values

    def _source(self, chain: Chain, name: str) -> HeldIntegers | None:
        """A number of the file as integers, or as what a linear operator makes of them."""
        if name in self.sources:
            return self.sources[name]
        node = self.network.producer.get(name)
        if node is None or node.outputs[0] != name or len(list(filter(None, node.outputs))) > 1:
            return None
        if node.op_type == "Concat":
            parts = [self._source(chain, operand) for operand in node.inputs]
            known = [part for part in parts if part is not None]
            if len(known) < len(parts) or not all(part.grid.same(known[0].grid) for part in known):
                return None
            self.sources[name] = self._selected(chain, node, known)
            return self.sources[name]
        if node.op_type in ("Mul", "Div") and (found := self._times_number(node)):
            source = self._source(chain, found[0])
            if source is None or not source.grid.uniform:
                return None
            self.sources[name] = replace(source, grid=replace(source.grid, scale=source.grid.scale * found[1]))
            return self.sources[name]
        exact = node.op_type in EXACT_MOVES
        if not exact and not (node.op_type in AVERAGES and not node.integer("count_include_pad", 0)):
            return None
        source = self._source(chain, node.inputs[0])
        if source is None or not source.grid.uniform or (node.op_type in MAXIMA and source.grid.step < 0):
            return None
        self.sources[name] = self._selected(chain, node, [source])
        return self.sources[name]

    def _selected(self, chain: Chain, node: Node, operands: Sequence[HeldIntegers]) -> HeldIntegers:
        """What an operator makes of integers on one grid, in the order of its first inputs: of int8 where the target
        does that, else of floats."""
        name, shape, grid = node.outputs[0], self.network.shape(node.outputs[0]), operands[0].grid
        exact = all(operand.exact for operand in operands) and node.op_type not in AVERAGES
        further, floats = node.inputs[len(operands) :], f"{name}::integers"
        if exact and node.op_type in self.wants.int8_moves and all(operand.narrow for operand in operands):
            inputs = (*(operand.narrow for operand in operands), *further)
            narrow = self._emit(chain, node.op_type, inputs, f"{name}::int8", shape, node.settings, dtype=INT8)
            self.narrowed[floats] = narrow
            self.selected.add(narrow)
            return HeldIntegers(self._emit(chain, WIDEN, (narrow,), floats, shape), narrow, grid)
        inputs = (*(operand.floats for operand in operands), *further)
        return HeldIntegers(self._emit(chain, node.op_type, inputs, floats, shape, node.settings), "", grid, exact)

    def _times_number(self, node: Node) -> tuple[str, TracedArray] | None:
        """The value that a node multiplies by one constant number, or divides by it, and the factor."""
        for position, other in enumerate(node.inputs[::-1] if node.op_type == "Mul" else node.inputs[1:]):
            x, factor = node.inputs[position], self._constant_number(other)
            if factor is not None and self.network.known_shape(x) == self.network.shape(node.outputs[0]):
                return x, factor if node.op_type == "Mul" else TracedArray.of(1.0) / factor
        return None

    def _constant_number(self, name: str) -> TracedArray | None:
        """A constant of one element, which the file may have as an integer; None for zero and numbers without end."""
        made = self.network.producer.get(name)
        if name in self.network.constants:
            known = self.network.traced(name)
        elif made is not None and made.op_type == DEQUANTISE and made.inputs[0] in self.network.constants:
            grid = grid_of(self.network, made)
            if grid is None:
                return None
            known = dequantised(self.network, made, grid)
        else:
            return None
        if known.array.size != 1 or not np.isfinite(known.float64).all() or not known.array.any():
            return None
        return known.reshape(1)

    def _moved(self, chain: Chain, node: Node, floats: str, output: str) -> str:
        inputs = (floats, *node.inputs[1:])
        return self._emit(chain, node.op_type, inputs, output, self.network.shape(node.outputs[0]), node.settings)

    def _floats(self, chain: Chain, q: str) -> str:
        """The integers as floats."""
        source = self.held[q]
        if not source.floats and source.raw:
            rounded = self._add(chain, "Floor" if source.rounding == CUT else "Round", source.raw)
            rounded = self._shifted(chain, rounded, float(source.rounding.centre))
            bounds = (("max", float(MOST)), ("min", float(LEAST)))
            self.held[q] = source = replace(source, floats=self._add(chain, "Clip", rounded, settings=bounds))
        elif not source.floats:
            shape = chain.shape(source.narrow)
            floats = self._emit(chain, WIDEN, (source.narrow,), f"{q}::floats", shape)
            self.held[q] = source = replace(source, floats=floats)
        elif q in self.network.inputs and source.grid.offset:
            floats = self._shifted(chain, q, -float(source.grid.offset))
            grid = replace(source.grid, offset=source.grid.offset)
            self.held[q] = source = replace(source, floats=floats, grid=grid)
        return source.floats

    def _integers(self, chain: Chain, source: HeldIntegers) -> str:
        """An exact source as int8."""
        if source.narrow:
            return source.narrow
        return self._narrow(chain, source.floats, CUT, f"{source.floats}::int8")

    def _operand(self, chain: Chain, product: IntegerProduct, left: HeldIntegers) -> str:
        """The int8 operand of a product: with channels that are even in number, twice where its weights are wide, and
        with its zero point around it and in channels that take it out of the sums."""
        own = name = left.raw or left.floats
        fill = left.grid.centre - (left.rounding.centre if left.raw else 0)
        begins, ends = product.padding(chain.shape(name), left.grid.centre)
        axis = product.channel_axis(len(ends))
        zeros = tuple(product.constants * (each == axis) for each in range(len(ends)))
        if not product.is_wide:
            ends, zeros = tuple(map(sum, zip(ends, zeros, strict=True))), ()
        if any((*begins, *ends)):
            name = self._padded(chain, name, begins, ends, fill, "padded")
        if product.is_wide:
            name = chain.concatenated(name, name, axis=axis, suffix="twice")
        if any(zeros):
            name = self._padded(chain, name, (0,) * len(zeros), zeros, fill, "zeros")
        shape = chain.shape(name)
        narrow = (
            self._integers(chain, left) if name == own else self._narrow(chain, name, left.rounding, f"{name}::int8")
        )
        wanted = product.operand_shape(shape)
        return narrow if wanted == shape else chain.add("Reshape", narrow, shape=wanted, dtype=INT8)

    def _padded(self, chain: Chain, x: str, begins: Shape, ends: Shape, number: int, suffix: str) -> str:
        """A value with this many elements of one number before and after each axis."""
        wider = tuple(b + extent + e for b, extent, e in zip(begins, chain.shape(x), ends, strict=True))
        pads = chain.array(np.array((*begins, *ends), np.int64), None)
        operands = (x, pads, chain.number(float(number)))
        return self._emit(chain, "Pad", operands, f"{chain.stem}::{suffix}", wider)

    def _narrow(self, chain: Chain, x: str, rounding: Rounded, output: str) -> str:
        if x in self.narrowed and rounding == CUT:
            return self.narrowed[x]
        centre = (("centre", rounding.centre),) if rounding.centre else ()
        settings: tuple[tuple[str, Setting], ...] = (*centre, ("rounding", rounding.to))
        narrow = self._emit(chain, NARROW, (x,), output, chain.shape(x), settings, dtype=INT8)
        self.narrowed[x] = narrow
        return narrow

    def _scaled(self, chain: Chain, x: str, factor: TracedArray) -> str:
        if factor.array.size == 1 and float(factor.float64.reshape(-1)[0]) == 1.0:
            return x
        return self._add(chain, "Mul", x, self._constant(chain, factor))

    def _shifted(self, chain: Chain, x: str, shift: float) -> str:
        kept = bool(self.network.rounding.rounded(np.array(shift)))
        return self._add(chain, "Add", x, chain.number(shift)) if kept else x

    def _constant(self, chain: Chain, constant: TracedArray) -> str:
        return chain.store(constant.reshape() if constant.array.size == 1 else constant)

    def _add(self, chain: Chain, op_type: str, *inputs: str, settings: tuple[tuple[str, Setting], ...] = ()) -> str:
        return chain.add(op_type, *inputs, shape=chain.shape(inputs[0]), settings=settings)

    def _emit(
        self,
        chain: Chain,
        op_type: str,
        inputs: tuple[str, ...],
        output: str,
        shape: tuple[int, ...],
        settings: tuple[tuple[str, Setting], ...] = (),
        name: str = "",
        dtype: int = FLOAT,
    ) -> str:
        """One more node, whose value is called `output`."""
        chain.values[output] = Value(shape, dtype)
        chain.nodes.append(Node(name or f"{chain.node.name}::{len(chain.nodes)}", op_type, inputs, (output,), settings))
        return output

    def _says(self, name: str, origin: Origin) -> None:
        self.draft.origin(name, origin)


def _along(vector: TracedArray, grid: Grid, shape: tuple[int, ...]) -> TracedArray:
    """One element for all, or one for each index of the grid's axis, as it broadcasts to a shape."""
    if grid.axis is None:
        return vector.reshape()
    spread = [1] * len(shape)
    spread[grid.axis] = -1
    return vector.reshape(*spread)
