"""Plans of kernels that are whole groups: which layers are merged, in which order groups run, what is refused.

lines `value operands...` --GraphBuilder--> graph --make_plan--> "a0 b1 | c2": groups in order, layers in each
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hw_models.chip import Chip
from hw_models.errors import ModelError, PlanError
from hw_models.loading import load_chip
from partitioner.context.plan_context import GraphContext, KernelContext
from partitioner.ir.graph import Constants, Graph, Op
from partitioner.ir.kernels import Kernel, KernelFloor, read_kernel
from partitioner.ir.layers import Layer
from partitioner.ir.plan import Group, Plan, parse_plan
from partitioner.ir.steps import Binding, MoveStep, RunStep, Step, ViewStep
from partitioner.ir.wants import Wants, floats_as
from partitioner.planners.levels import KERNEL_PLANNERS, FusedKernels, kernel_planner_of, planner_or_auto
from partitioner.planners.registry import make_kernel_plan
from partitioner.verification.kernel_plan import verify_kernel_plan
from tests.partition_graphs import graphs
from tests.partitioner.kernel_networks import Names, network

Offer = Callable[[Names], float | None]
"""Seconds of a kernel for layers by their names; None where they cannot be fused."""

CHIP = load_chip("stcp920")


@dataclass(frozen=True)
class Offers:
    """A target that offers what a function says, and always a worse kernel before it."""

    offer: Offer
    name: str = "offers"

    @property
    def wants(self) -> Wants:
        return Wants(floats_as("float16"), "channels_last")

    def accepts(self, graph: Graph, op: Op, constants: Constants, chip: Chip) -> str | None:
        del graph, op, constants, chip
        return None

    def can_fuse_epilogue(self, graph: Graph, layer: tuple[Op, ...], op: Op, operand: str) -> str | None:
        del graph, layer, op, operand
        return "layers are single operators here"

    def kernels(self, graph: Graph, layers: tuple[Layer, ...], chip: Chip) -> tuple[Kernel, ...]:
        del graph, chip
        seconds = self.offer(tuple(layer.name for layer in layers))
        if seconds is None:
            return ()
        floors = (KernelFloor("main", seconds, "all bytes"), KernelFloor("cores", seconds / 2))
        return Kernel("slow", floors=(KernelFloor("main", seconds + 1),)), Kernel("fast", (("n", 3),), floors=floors)


def one_second_each(*fused: str, seconds: float = 1.0) -> Offers:
    """A second a layer; and for these sets, written `a0 b1`, so many together."""
    known = {tuple(words.split()): seconds for words in fused}
    return Offers(lambda names: 1.0 if len(names) == 1 else known.get(names))


def context(made: tuple[Graph, Constants], target: Offers) -> KernelContext:
    return GraphContext(*made, CHIP, target)


def plan_of(made: tuple[Graph, Constants], target: Offers, level: str = "O3") -> Plan:
    plan = make_kernel_plan(context(made, target), KERNEL_PLANNERS[level]())
    assert parse_plan(str(plan)) == plan
    return plan


def groups(plan: Plan) -> str:
    return " | ".join(" ".join(layer.name for layer in plan.group_by_name[step.group].layers) for step in plan.steps)


CHAIN = ("a x", "b a", "c b", "d c")


@pytest.mark.parametrize(
    ("lines", "target", "expected"),
    [
        (CHAIN, one_second_each(), "a0 | b1 | c2 | d3"),
        (CHAIN, one_second_each("a0 b1", "b1 c2", "c2 d3"), "a0 b1 | c2 d3"),
        (CHAIN, one_second_each("a0 b1", "a0 b1 c2"), "a0 b1 c2 | d3"),
        (CHAIN, one_second_each("b1 c2 d3"), "a0 | b1 c2 d3"),  # the whole chain has a kernel, no pair of it has
        (CHAIN, one_second_each("a0 b1", seconds=1.96), "a0 b1 | c2 | d3"),  # 2 % below the sum of both
        (CHAIN, one_second_each("a0 b1", seconds=1.961), "a0 | b1 | c2 | d3"),
        (("a x", "b a", "c a b"), one_second_each("a0 c2"), "a0 | b1 | c2"),  # b would run in the middle of it
        (("a x", "b a", "c a b"), one_second_each("a0 b1 c2"), "a0 b1 c2"),
        (("a x", "b x", "c a", "d b a"), one_second_each("a0 d3"), "b1 | a0 d3 | c2"),  # b first: the kernel reads it
        # Each of both sets could be one kernel, but each would read what the other makes.
        (("a x", "c x", "b a c", "d c a"), one_second_each("a0 b2", "c1 d3"), "c1 | a0 b2 | d3"),
        (("a x", "v a", "b v"), one_second_each("a0 b2", "a0 view1", "view1 b2", "a0 view1 b2"), "a0 | view1 | b2"),
    ],
)
def test_layers_are_merged_where_a_kernel_pays(lines: tuple[str, ...], target: Offers, expected: str) -> None:
    assert groups(plan_of(network(*lines), target)) == expected


def test_o0_is_a_kernel_a_layer_and_says_what_binds_it() -> None:
    plan = plan_of(network("a x", "b a"), one_second_each("a0 b1"), "O0")
    assert groups(plan) == "a0 | b1"
    assert [group.kernel for group in plan.groups] == ["fast(n=3)", "fast(n=3)"]
    said = str(next(decision for decision in plan.decisions if decision.subject == "a0"))
    assert said == "a0: computed by fast(n=3): 1 launch, 1000000.000 us at least, main binds (all bytes)"


def test_what_leaves_a_fused_group_is_exported() -> None:
    plan = plan_of(network("a x", "b a", "c a", outputs="b"), one_second_each("a0 b1"))
    assert groups(plan) == "a0 b1 | c2"
    first = plan.steps[0]
    assert isinstance(first, RunStep)
    assert (first.exports, first.binding) == ((("a0.out", "DDR"),), Binding((1, 1, 1, 1), ()))


def test_the_grid_is_that_of_the_tile() -> None:
    kernel = Kernel("k", tile=(1, 2, 3, 8))
    assert kernel.grid((4, 4, 4, 8)) == (4, 2, 2, 1)
    assert Kernel("k").grid((4, 4)) == (1, 1)


@given(made=graphs(most_patterns=4), seed=st.integers(0, 99))
def test_random_networks_with_random_kernels(made: tuple[Graph, Constants], seed: int) -> None:
    """Whatever is offered: the plan is right (it is verified), and takes no longer than one kernel a layer."""

    def offer(names: Names) -> float | None:
        draw = sha256(f"{seed} {names}".encode()).digest()
        return None if len(names) > 1 and draw[0] > 100 else len(names) * (draw[1] + 1.0)

    def seconds(plan: Plan) -> float:
        return sum(offer(tuple(x.name for x in group.layers)) or 0 for group in plan.groups if group.kernel)

    fused, alone = plan_of(made, Offers(offer)), plan_of(made, Offers(offer), "O0")
    assert seconds(fused) <= seconds(alone)


def test_long_networks_are_planned_soon() -> None:
    """400 layers, of which any two to six in a row have a kernel: each set is asked for once."""
    asked: list[Names] = []

    def offer(names: Names) -> float | None:
        asked.append(names)
        return 1.0 if len(names) <= 6 else None

    lines = ["a x", *(f"{chr(97 + (k + 1) % 20)} {chr(97 + k % 20)}" for k in range(399))]
    plan = make_kernel_plan(context(network(*lines), Offers(offer)), FusedKernels())
    assert len(plan.groups) == 67
    planned = [names for names in asked if len(names) > 1]
    assert len(planned) <= 400 * 10


def changed_group(plan: Plan, number: int, **fields: object) -> Plan:
    found = list(plan.groups)
    found[number] = replace(found[number], **fields)  # type: ignore[arg-type]
    return replace(plan, groups=tuple(found))


def changed_step(plan: Plan, number: int, **fields: object) -> Plan:
    found = list(plan.steps)
    found[number] = replace(found[number], **fields)  # type: ignore[arg-type]
    return replace(plan, steps=tuple(found))


def moved(step: Step) -> MoveStep:
    return MoveStep("copy", step.group, step.instance, step.box, step.scope, Binding((1,), ()), "x")


def renamed(step: Step) -> ViewStep:
    return ViewStep(step.group, step.box, step.scope)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda p: changed_group(p, 0, kernel="fast(n=4)"), "step a0: needs a kernel that offers offers .* has fast"),
        (lambda p: changed_group(p, 0, kernel=""), "step a0: needs a kernel that offers offers for .*; has none"),
        (lambda p: changed_step(p, 0, binding=Binding((1, 1, 1, 1), (0,))), "step a0: needs one kernel for the whole"),
        (lambda p: changed_step(p, 0, binding=Binding((2, 1, 1, 1), ())), r"step a0: needs the grid \[1, 1, 1, 1\]"),
        (lambda p: changed_step(p, 0, scope="L1"), "step a0: needs a memory of stcp920 that kernels share; has L1"),
        (lambda p: replace(p, steps=(moved(p.steps[0]), *p.steps[1:])), "every instance of every group once"),
        (lambda p: replace(p, steps=(moved(p.steps[0]), *p.steps)), "step a0: needs a kernel that runs, .* has copy"),
        (lambda p: replace(p, steps=(p.steps[0], renamed(p.steps[1]))), "step c2: needs a kernel that runs, .* view"),
        (lambda p: changed_step(p, 0, exports=()), "step a0: needs a place for a0.out; has none"),
        (lambda p: replace(p, steps=p.steps[::-1]), "step c2: needs a0.out, which c2 reads; has no earlier step"),
        (lambda p: replace(p, steps=p.steps[:1]), "every instance of every group once"),
        (lambda p: changed_group(p, 0, layers=p.groups[0].layers[::-1]), "step a0: needs a"),
    ],
)  # fmt: skip
def test_wrong_plans_are_refused(change: Callable[[Plan], Plan], said: str) -> None:
    made, target = network("a x", "b a", "c a", outputs="b"), one_second_each("a0 b1")
    with pytest.raises(PlanError, match=said):
        verify_kernel_plan(change(plan_of(made, target)), context(made, target))


def test_a_layer_without_a_kernel_is_named() -> None:
    target = Offers(lambda names: None if "b1" in names else 1.0)
    for level in ("O0", "O3"):
        with pytest.raises(PlanError, match="layer b1: needs a kernel of offers for b1; has none"):
            make_kernel_plan(context(network("a x", "b a"), target), KERNEL_PLANNERS[level]())


@pytest.mark.parametrize(
    ("level", "spill", "said"),
    [
        ("O1", "none", "--level: needs O0 or O3 or auto for offers, whose kernels are whole groups of layers; has O1"),
        ("O9", "none", "--level: needs one of O0, O1, O2, O3, streamed, astitch, auto; has O9"),
        ("O3", "auto", "--spill: needs none for offers, whose kernels are whole groups of layers; has auto"),
    ],
)
def test_levels_that_such_targets_do_not_have(level: str, spill: str, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        kernel_planner_of(one_second_each().name, planner_or_auto(level, spill))


@pytest.mark.parametrize("parameters", [(), (("m", 128),), (("m", 128), ("kind", "row.major"), ("shift", -3))])
def test_kernels_are_read_back_from_their_text(parameters: tuple[tuple[str, int | str], ...]) -> None:
    assert read_kernel(Kernel("gemm", parameters).text) == ("gemm", dict(parameters))


@pytest.mark.parametrize("text", ["", "gemm(", "gemm()", "gemm(m=)", "gemm(m=1,n=2)", "a b", "gemm(m=1) "])
def test_what_is_no_kernel_is_refused(text: str) -> None:
    with pytest.raises(PlanError, match=r"needs template\(name=value"):
        read_kernel(text)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Kernel("gemm", (("m", "128"),)),  # would be read back as a number
        lambda: Kernel("gemm", (("m", "a b"),)),
        lambda: Kernel("gemm", (("m", 1), ("m", 2))),
        lambda: Kernel("gemm", launches=0),
        lambda: Kernel("gemm", launch_seconds=-1.0),
        lambda: Kernel("gemm", floors=(KernelFloor("main", float("nan")),)),
    ],
)
def test_kernels_that_make_no_sense_are_refused(make: Callable[[], Kernel]) -> None:
    with pytest.raises(PlanError, match=r"kernel '?gemm"):
        make()


def test_the_text_of_other_plans_has_no_kernel() -> None:
    group = Group("g", (Layer("g", ("g",), "g.out"),))
    step = RunStep("g", 0, ((0, 1),), "DDR", Binding((1,), (0,)))
    assert "kernel" not in str(Plan("p", "O0", "", "", 1, (group,), (step,), ()))
