"""Groups that the user asks for: made whatever they cost, and refused in one sentence where they cannot be."""

from __future__ import annotations

import subprocess
import sys

import pytest
from click.testing import CliRunner

from dsa_sched.cli import cli
from dsa_sched.pipeline.driver import compile_model, plan_model
from dsa_sched.stages.compilation import CompileOptions
from hw_models.errors import ModelError, TargetError
from partitioner.ir.plan import Plan
from partitioner.planners.levels import KERNEL_PLANNERS, FusedKernels
from partitioner.planners.registry import make_kernel_plan
from tests.partitioner.kernel_networks import Moves, Names, gpu_context, network

US = 1e-6
LINES = ("a x", "b a", "c b", "v c", "d v", "e c a")
SECONDS = {("b1", "c2"): 9 * US, ("a0", "b1"): 1 * US, ("view3",): 0.0}


def seconds(names: Names) -> float | None:
    """A microsecond a layer; two sets of them have a kernel, of which one is slow."""
    return US if len(names) == 1 else SECONDS.get(names)


def plan_of(*forced: str, level: str = "O3") -> Plan:
    return make_kernel_plan(
        gpu_context(network(*LINES), Moves(lambda _: 0, seconds)), KERNEL_PLANNERS[level](), forced=forced
    )


def groups(plan: Plan) -> str:
    return " | ".join(" ".join(layer.name for layer in plan.group_by_name[step.group].layers) for step in plan.steps)


@pytest.mark.parametrize("level", ["O3", "auto"])
def test_a_slow_group_is_made_where_it_is_asked_for(level: str) -> None:
    assert groups(plan_of(level=level)) == "a0 b1 | c2 | view3 | d4 | e5"
    plan = plan_of("b1,c2", level=level)
    assert groups(plan) == "a0 | b1 c2 | view3 | d4 | e5"
    said = [str(decision) for decision in plan.decisions if "requested" in decision.verdict]
    assert said == [
        "b1: one kernel with c2, as requested: moves takes 11.000 us at least (tensor binds), separately they take "
        "6.000 us (b1 3.000 us launch, c2 3.000 us launch)"
    ]


def test_at_o0_it_is_made_too_and_nothing_else() -> None:
    assert groups(plan_of("c2,b1", level="O0")) == "a0 | b1 c2 | view3 | d4 | e5"


def test_a_family_is_the_one_that_computes_it() -> None:
    assert groups(plan_of("b1,c2:moves")) == "a0 | b1 c2 | view3 | d4 | e5"
    assert plan_of("b1,c2:moves") == plan_of("b1,c2:moves")


@pytest.mark.parametrize(
    ("forced", "said"),
    [
        (("b1,q",), "--force-group b1,q: needs layers or operators of net: A,B or A,B:FAMILY; has q; `explain` lists"),
        (("b1,c2:dense",), "--force-group b1,c2:dense: needs a kernel of moves for b1, c2 together; has no dense, but"),
        (
            ("d4,e5",),
            "--force-group d4,e5: needs a kernel of moves for d4, e5 together; has none that the target offers",
        ),
        (("a0,c2",), "--force-group a0,c2: needs layers with no other layer between them; has b1"),
        (("c2,view3",), "--force-group c2,view3: needs layers that kernels compute; has view3, another name for the"),
        (
            ("a0,b1", "b1,c2"),
            "--force-group b1,c2: needs layers that are in no other group; has b1, which another group has",
        ),
        (("",), "--force-group : needs layers or operators of net: A,B or A,B:FAMILY; has an empty name;"),
    ],
)
def test_groups_that_cannot_be(forced: tuple[str, ...], said: str) -> None:
    with pytest.raises(ModelError) as refused:
        plan_of(*forced)
    assert str(refused.value).startswith(said)


def test_groups_that_need_each_other() -> None:
    made = network("a x", "c x", "b a c", "d c a")
    target = Moves(lambda _: 0, lambda _: US)
    with pytest.raises(ModelError, match="--force-group: needs groups that can run one after the other; has groups"):
        make_kernel_plan(gpu_context(made, target), FusedKernels(), forced=("a0,b2", "c1,d3"))


def test_targets_of_in_order_cores_have_none() -> None:
    needs = "--force-group: needs a target whose kernels are whole groups of layers; has neuralscale-v1"
    for ask in (plan_model, compile_model):
        with pytest.raises(TargetError, match=needs):
            ask("squeezenet", "stcp920", CompileOptions(force_groups=("a,b",)))


@pytest.mark.parametrize("words", [["compile", "--print", "plan"], ["explain"], ["verify"]])
@pytest.mark.commit
def test_the_command_line_has_it(words: list[str]) -> None:
    command, *more = words
    done = subprocess.run(
        [sys.executable, "-m", "dsa_sched", command, "squeezenet", *more, "--chip", "stcp920", "--force-group", "a,b"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "error: --force-group: needs a target whose kernels are whole groups" in done.stderr


def test_parts_of_a_model_have_none() -> None:
    words = ["verify", "squeezenet", "--chip", "a100", "--bisect", "--force-group", "a,b"]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 2
    assert "--bisect verifies parts of the model" in done.output
