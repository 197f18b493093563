"""Nodes to machine code: guards for the work of only some cores, settings, pointers, loops.

    Node, Node, ... --LoopedCode.write--> items, and the operator of each stretch of them

CSRs and registers are tracked core by core, so that shared code writes only what it must. Where the registers do not
suffice for a loop, its iterations are written one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from codegen.neuralscale.asm.assembler import Item, Label, branch, item_bytes
from codegen.neuralscale.emit.expansion import FT0, T0, ZERO, Body, register_fields
from codegen.neuralscale.isa.csr import csr
from codegen.neuralscale.isa.table import instruction
from codegen.neuralscale.rolling.alignment import SharedStep, Spreads
from codegen.neuralscale.rolling.chains import Chains, asked_for
from codegen.neuralscale.rolling.pins import pins_of, shifted, uses_of
from codegen.neuralscale.rolling.registers import (
    CORE_BIT,
    NEAR,
    CoreRegisters,
    NoRegister,
    RollingValue,
    nearby,
    set_register,
)
from codegen.neuralscale.rolling.repeats import Leaf, Node, RepeatLoop, flattened
from codegen.neuralscale.rolling.settings import (
    ENGINE_BASES,
    Settings,
    kept_words,
    leaves_of,
    names_in,
    steady_settings,
)
from codegen.neuralscale.rolling.steps import SCALAR

MOST_PINNED = 20
"""Largest number of registers that follow loops; the rest of the pool serves operands."""

REACH_BYTES = 4000
"""Bytes that a branch surely reaches, a little less than it can."""

_WORD = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class CodePiece:
    """Consecutive items that belong to one operator."""

    source: str
    items: tuple[Item, ...]


@dataclass
class LoopedCode:
    """Code of one program, written node by node."""

    cluster: int
    spreads: Spreads
    everyone: int
    registers: CoreRegisters = field(init=False)
    chains: Chains = field(init=False)
    settings: Settings = field(default_factory=Settings)
    code: list[Item] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    labels: int = 0
    places: dict[int, int] = field(default_factory=dict)
    """Position of each leaf in the order of the code."""

    def __post_init__(self) -> None:
        self.registers = CoreRegisters(self.spreads)
        self.chains = Chains(self.cluster, self.registers, self.settings)

    def write(self, nodes: Sequence[Node]) -> None:
        """Write all nodes in order."""
        self.chains.kept_words = kept_words(leaves_of(nodes))
        for place, leaf in enumerate(leaves_of(nodes)):
            self.places[id(leaf)] = place
            for use in asked_for(leaf):
                self.registers.future.places.setdefault(use, []).append(place)
        self._sequence([(node, node.values, ((),) * len(node.values)) for node in nodes], self.everyone, 0)

    def pieces(self) -> Iterator[CodePiece]:
        """All written code, in stretches of one operator; labels belong to the code that follows them."""
        begin, sized, source = 0, 0, ""
        for end, item in enumerate(self.code):
            if not item_bytes(item):
                continue
            if sized and self.sources[end] != source:
                yield CodePiece(source, tuple(self.code[begin:sized]))
                begin = sized
            sized, source = end + 1, self.sources[end]
        if sized:
            yield CodePiece(source, tuple(self.code[begin:]))

    # Sequences and guards

    def _sequence(
        self, nodes: Sequence[tuple[Node, Sequence[int], Sequence[tuple[int, ...]]]], context: int, level: int
    ) -> None:
        """Write nodes, each with the values of its first iteration and their strides in the outer loops."""
        at = 0
        while at < len(nodes):
            mask = nodes[at][0].mask
            end = at
            while end < len(nodes) and nodes[end][0].mask == mask:
                end += 1
            guard = len(self.code)
            for node, values, strides in nodes[at:end]:
                if isinstance(node, Leaf):
                    self.registers.future.now = self.places[id(node)]
                    self._leaf(node.step, values, strides)
                else:
                    self._loop(node, values, strides, level)
            if mask != context:
                self._guard(guard, mask)
            at = end

    def _guard(self, begin: int, mask: int) -> None:
        """Guard the code written since `begin` for the cores of the mask; the others branch around it."""
        label = self._label()
        test = instruction("andi", T0, CORE_BIT, mask)
        if sum(map(item_bytes, self.code[begin:])) <= REACH_BYTES:
            guard: list[Item] = [test, branch("beq", T0, ZERO, label)]
        else:
            inside = self._label()
            guard = [test, branch("bne", T0, ZERO, inside), branch("jal", ZERO, label), Label(inside)]
        self.code[begin:begin] = guard
        self.sources[begin:begin] = [self.sources[begin]] * len(guard)
        self._append([Label(label)], self.sources[-1])

    def _label(self) -> str:
        self.labels += 1
        return f".l{self.labels}"

    def _append(self, items: Sequence[Item], source: str) -> None:
        self.code += items
        self.sources += [source] * len(items)

    # One step

    def _leaf(self, step: SharedStep, values: Sequence[int], strides: Sequence[tuple[int, ...]]) -> None:
        kind, code = step.kind, list[Item]()
        places = [RollingValue(v, n, s) for v, n, s in zip(values, step.spreads, strides, strict=True)]
        if kind.opaque is not None:
            code += Body(self.cluster).expand(kind.opaque)
            self.registers.forget()
            self.settings.forget((*ENGINE_BASES, *self.chains.kept_words), step.mask)
        elif kind.opcode == "dma.start":
            self.chains.start(code, dict(kind.settings), places, step.mask)
        elif kind.opcode == "dma.wait":
            self.chains.await_end(code, dict(kind.settings), step.mask)
        else:
            self._issue(code, step, places)
        self._append(code, kind.source)

    def _issue(self, code: list[Item], step: SharedStep, places: Sequence[RollingValue]) -> None:
        named: dict[str, int] = {}
        for name, value in step.kind.settings:
            if name == SCALAR:
                named["fs"] = FT0
            self._set(code, name, value, step.mask)
        for name, place in zip(step.kind.places, places, strict=True):
            named[name] = self.registers.place(code, place, step.mask)
        fields = register_fields(step.kind.opcode)
        scalar = {"rs1", "rs2"} - named.keys()
        code.append(instruction(step.kind.opcode, *[named["fs"] if name in scalar else named[name] for name in fields]))
        self.registers.busy.clear()

    def _set(self, code: list[Item], name: str, value: int, mask: int) -> None:
        """Set a CSR or the scalar."""
        if self.settings.holds(name, value, mask):
            return
        register = self.registers.place(code, RollingValue(value), mask)
        if name == SCALAR:
            code.append(instruction("fmv.w.x", FT0, register))
        else:
            code.append(instruction("csrrw", ZERO, csr(name).number, register))
        self.registers.busy.clear()
        self.settings.set(name, value, mask)

    # Loops

    def _loop(self, loop: RepeatLoop, values: Sequence[int], outer: Sequence[tuple[int, ...]], level: int) -> None:
        kept = (len(self.code), dict(self.registers.held), set(self.registers.pinned), self.settings.copy().known)
        try:
            self._rolled(loop, values, outer, level)
        except NoRegister:
            begin, self.registers.held, self.registers.pinned, self.settings.known = kept
            del self.code[begin:], self.sources[begin:]
            self.registers.busy.clear()
            self._unrolled(loop, values, outer, level)

    def _unrolled(self, loop: RepeatLoop, values: Sequence[int], outer: Sequence[tuple[int, ...]], level: int) -> None:
        nodes = []
        at = 0
        for node, turn in flattened(loop, values):
            end = at + len(turn)
            nodes.append((node, turn, tuple(outer[at:end])))
            at = end % len(values) if values else 0
        self._sequence(nodes, loop.mask, level)

    def _rolled(self, loop: RepeatLoop, values: Sequence[int], outer: Sequence[tuple[int, ...]], level: int) -> None:
        registers, mask = self.registers, loop.mask
        most = MOST_PINNED - len(registers.pinned) - 1 - max(map(_needed, loop.body))
        pins = pins_of(uses_of(loop, values, outer, level), most)
        if pins is None:
            raise NoRegister
        source = _first_source(loop)
        code: list[Item] = []
        pinned: dict[int, RollingValue] = {}
        for pin in pins:
            start = nearby(pin.value, pin.value.base, level)
            pinned[registers.pin(code, start, pin.mask)] = pin.value
            registers.busy.clear()
        counter = registers.pin(code, RollingValue(loop.count), mask)
        registers.busy.clear()
        steady = tuple(steady_settings(loop))
        for name, value in steady:
            self._set(code, name, value, mask)
        registers.forget()
        self.settings.forget(names_in(loop) - {name for name, _ in steady}, mask)
        for register, pointer in pinned.items():
            registers.follow(register, pointer)
        registers.hide(counter)
        head = self._label()
        self._append([*code, Label(head)], source)
        begin = len(self.code)
        strides = [shifted(o, level, s) for o, s in zip(outer, loop.strides, strict=True)]
        at = 0
        body = []
        for node in loop.body:
            end = at + len(node.values)
            body.append((node, tuple(values[at:end]), tuple(strides[at:end])))
            at = end
        self._sequence(body, mask, level + 1)
        self._turn(begin, head, counter, [(register, value.strides[level]) for register, value in pinned.items()])
        registers.leave(level, loop.count, pinned)
        registers.pinned -= {counter, *pinned}

    def _turn(self, begin: int, head: str, counter: int, steps: Sequence[tuple[int, int]]) -> None:
        """End a loop: advance the pointers, and branch back."""
        code: list[Item] = []
        for register, stride in sorted(steps, key=lambda step: step[1]):
            if abs(stride) <= NEAR:
                code.append(instruction("addi", register, register, stride))
            else:
                code += set_register(T0, stride & _WORD)
                code.append(instruction("add", register, register, T0))
        code.append(instruction("addi", counter, counter, -1))
        if sum(map(item_bytes, self.code[begin:])) + 4 * len(code) <= REACH_BYTES:
            code.append(branch("bne", counter, ZERO, head))
        else:
            out = self._label()
            code += [branch("beq", counter, ZERO, out), branch("jal", ZERO, head), Label(out)]
        self._append(code, self.sources[-1])


def _needed(node: Node) -> int:
    """Approximate number of registers that the loops in a node want for their values."""
    if isinstance(node, Leaf):
        return 0
    return 1 + len({stride for stride in node.strides if stride}) + max(map(_needed, node.body))


def _first_source(node: Node) -> str:
    return node.step.kind.source if isinstance(node, Leaf) else _first_source(node.body[0])
