"""Functions of linalg and tosa: their task graphs, their placement, and mlir-opt as the witness of what comes back."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from xdsl.dialects.builtin import IntegerAttr, StringAttr
from xdsl.ir import Operation

from dsa_sched.placement.mlir.convert import generic_text
from dsa_sched.placement.mlir.passes import PlaceFunction
from dsa_sched.placement.mlir.tensor_functions import (
    annotate_function,
    foreign_context,
    function_of,
    parse_foreign_module,
    task_graph_of_function,
)
from dsa_sched.placement.model.pricing import priced
from dsa_sched.placement.model.problem import Problem
from dsa_sched.placement.model.scenario import read_scenario
from dsa_sched.placement.model.task_graph import INPUTS, OUTPUTS, Task, TaskGraph
from dsa_sched.placement.schedule.schedule import Schedule, TaskRun
from hw_models.errors import PlacementError

SAMPLES = Path(__file__).resolve().parents[3] / "samples"
TEXT = (SAMPLES / "functions" / "two_branches.mlir").read_text(encoding="utf-8")
SCENARIO = SAMPLES / "scenarios" / "big_little.yaml"
NAMES = ("mlir-opt", *(f"mlir-opt-{version}" for version in range(30, 15, -1)))
MLIR_OPT = next((name for name in NAMES if shutil.which(name)), "")

CONV, CLAMP, MATMUL, RELU = "1:tosa.conv2d", "2:tosa.clamp", "7:linalg.matmul", "8:linalg.generic"


def graph_of(text: str) -> TaskGraph:
    return task_graph_of_function(function_of(parse_foreign_module(text)))


def function(body: str, arguments: str = "tensor<4x8xf32>", results: str = "tensor<4x8xf32>") -> str:
    """A function in the generic form whose arguments are %a0, %a1, ..."""
    kinds = [kind.strip() for kind in re.split(r",(?![^<]*>)", arguments)]
    names = ", ".join(f"%a{number}: {kind}" for number, kind in enumerate(kinds))
    signature = f"function_type = ({arguments}) -> ({results})"
    whole = f'"func.func"() <{{{signature}, sym_name = "f"}}> ({{ ^bb0({names}): {body} }}) : () -> ()'
    return f'"builtin.module"() ({{ {whole} }}) : () -> ()'


def test_work_and_bytes_are_those_of_the_shapes() -> None:
    """By hand: 3x3 windows of 64 channels; 128 x 3072 x 768 products; constants that are fetched, not destinations."""
    graph = graph_of(TEXT)
    assert graph.tasks == (
        Task(INPUTS),
        Task(CONV, ("tosa.conv2d",), 28 * 28 * 64 * 9 * 64, 64 * 4),
        Task(CLAMP, ("tosa.clamp",), 28 * 28 * 64),
        Task(MATMUL, ("linalg.matmul",), 128 * 3072 * 768, 768 * 3072 * 4),
        Task(RELU, ("linalg.generic",), 128 * 3072),
        Task(OUTPUTS),
    )
    assert {value.name: (value.producer, value.consumers, value.size_bytes) for value in graph.values} == {
        "argument 0": (INPUTS, (CONV,), 28 * 28 * 64 * 4),
        "argument 1": (INPUTS, (CONV,), 64 * 9 * 64 * 4),
        "argument 2": (INPUTS, (MATMUL,), 128 * 768 * 4),
        CONV: (CONV, (CLAMP,), 28 * 28 * 64 * 4),
        CLAMP: (CLAMP, (OUTPUTS,), 28 * 28 * 64 * 4),
        MATMUL: (MATMUL, (RELU,), 128 * 3072 * 4),
        RELU: (RELU, (OUTPUTS,), 128 * 3072 * 4),
    }


@pytest.mark.parametrize(
    ("op", "arguments", "results", "operations"),
    [
        ("tosa.conv3d", "tensor<1x4x6x6x3xf16>, tensor<5x2x3x3x3xf16>", "tensor<1x3x4x4x5xf16>", 240 * 54),
        ("tosa.depthwise_conv2d", "tensor<1x6x6x3xf16>, tensor<3x3x3x2xf16>", "tensor<1x4x4x6xf16>", 96 * 9),
        ("tosa.transpose_conv2d", "tensor<1x4x4x3xf16>, tensor<5x2x2x3xf16>", "tensor<1x8x8x5xf16>", 48 * 20),
        ("tosa.matmul", "tensor<2x4x8xf16>, tensor<2x8x5xf16>", "tensor<2x4x5xf16>", 40 * 8),
        ("tosa.fully_connected", "tensor<4x8xf16>, tensor<5x8xf16>, tensor<5xf16>", "tensor<4x5xf16>", 20 * 8),
        ("tosa.reduce_sum", "tensor<4x8xf16>", "tensor<4x1xf16>", 32),
        ("other.anything", "tensor<4x8xf16>", "tensor<4x2xf16>", 8),
    ],
)  # fmt: skip
def test_operations_of(op: str, arguments: str, results: str, operations: int) -> None:
    operands = ", ".join(f"%a{number}" for number in range(len(arguments.split(", "))))
    body = f'%0 = "{op}"({operands}) : ({arguments}) -> {results} "func.return"(%0) : ({results}) -> ()'
    assert graph_of(function(body, arguments, results)).tasks[1].macs == operations


def test_pools_count_their_window() -> None:
    read, made = "tensor<1x8x8x2xf32>", "tensor<1x4x4x2xf32>"
    pool = f'%0 = "tosa.max_pool2d"(%a0) <{{kernel = array<i64: 3, 2>}}> : ({read}) -> {made}'
    assert graph_of(function(f'{pool} "func.return"(%0) : ({made}) -> ()', read, made)).tasks[1].macs == 32 * 6


def test_an_operation_waits_for_what_its_region_reads() -> None:
    kind = "tensor<4x8xf32>"
    body = f"""%0 = "x.first"(%a0) : ({kind}) -> {kind}
        %1 = "x.loop"() ({{ %2 = "x.inner"(%0) : ({kind}) -> {kind} "x.yield"(%2) : ({kind}) -> () }}) : () -> {kind}
        "func.return"(%1) : ({kind}) -> ()"""
    graph = graph_of(function(body))
    assert graph.value["0:x.first"].consumers == ("1:x.loop",)


def written(op: Operation) -> dict[str, str | int]:
    found: dict[str, str | int] = {}
    for name, value in op.attributes.items():
        if name.startswith("dsa."):
            assert isinstance(value, StringAttr | IntegerAttr)
            found[name] = value.data if isinstance(value, StringAttr) else value.value.data
    return found


def placed(text: str = TEXT, method: str = "exact") -> str:
    module = parse_foreign_module(text)
    PlaceFunction(str(SCENARIO), method).apply(foreign_context(), module)
    return generic_text(module)


def runs_of(text: str, problem: Problem) -> dict[str, TaskRun]:
    """What the annotations say, by task."""
    ops = list(function_of(parse_foreign_module(text)).body.block.ops)
    runs = {}
    for name in (task.name for task in problem.graph.tasks[1:-1]):
        said = written(ops[int(name.split(":")[0])])
        numbers = [int(said[f"dsa.{key}"]) for key in ("stream", "start_ns", "end_ns")]
        runs[name] = TaskRun(name, str(said["dsa.device"]), *numbers)
    return runs


def test_what_comes_back_says_where_and_when_each_runs() -> None:
    """Two branches that do not meet run side by side; each operation for as long as it takes on its device."""
    text = placed()
    problem = priced(graph_of(TEXT), read_scenario(SCENARIO))
    names = [machine.name for machine in problem.machines]
    runs = runs_of(text, problem)
    for number, task in enumerate(problem.graph.tasks[1:-1], start=1):
        run = runs[task.name]
        assert run.end_ns - run.start_ns == problem.work_ns[number, names.index(run.machine)]
    assert runs[CONV].machine == runs[CLAMP].machine != runs[MATMUL].machine == runs[RELU].machine
    assert runs[CONV].end_ns <= runs[CLAMP].start_ns
    said = written(function_of(parse_foreign_module(text)))
    assert said["dsa.method"] == "exact"
    assert int(said["dsa.makespan_ns"]) >= max(run.end_ns for run in runs.values())


def test_only_annotations_are_new_and_older_ones_go() -> None:
    plain = generic_text(parse_foreign_module(TEXT))
    once = placed()
    assert re.sub(r"dsa\.\w+ = [^,}]+(, )?", "", once).replace(", }", "}").replace(" {}", "") == plain
    assert placed(once) == once
    assert placed(once, "single") == placed(TEXT, "single") != once


@pytest.mark.skipif(not MLIR_OPT, reason="mlir-opt is not installed")
def test_mlir_opt_reads_what_comes_back() -> None:
    command = [MLIR_OPT, "--allow-unregistered-dialect", "--mlir-print-op-generic"]
    done = subprocess.run(command, input=placed(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert graph_of(done.stdout) == graph_of(TEXT)
    again = [written(op) for op in function_of(parse_foreign_module(done.stdout)).body.block.ops]
    assert again == [written(op) for op in function_of(parse_foreign_module(placed())).body.block.ops]


RETURN = '"func.return"(%a0) : (tensor<4x8xf32>) -> ()'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("func.func @f( {", "needs a module in MLIR's generic form"),
        ('"builtin.module"() ({ ^bb0: }) : () -> ()', "one function, or its name; has none with a body"),
        (
            function('"func.return"(%a0) : (tensor<?x8xf32>) -> ()', "tensor<?x8xf32>", "tensor<?x8xf32>"),
            r"function f: needs tensors of static shapes; has tensor<\?x8xf32>",
        ),
        (
            function(f'"x.store"(%a0) : (tensor<4x8xf32>) -> () {RETURN}'),
            "x.store of f: needs results: functions on tensors",
        ),
        (
            function('"func.return"(%a0) : (f32) -> ()', "f32", "f32"),
            "function f: needs a func.return of tensors; has func.return",
        ),
        (
            function(f'"cf.br"(%a0) [^bb1] : (tensor<4x8xf32>) -> () ^bb1(%b: tensor<4x8xf32>): {RETURN}'),
            "function f: needs one block: control flow inside operations; has 2",
        ),
    ],
)
def test_refusals(text: str, said: str) -> None:
    with pytest.raises(PlacementError, match=said):
        graph_of(text)


def test_a_schedule_of_another_graph_is_refused() -> None:
    found = function_of(parse_foreign_module(TEXT))
    with pytest.raises(PlacementError, match="function two_branches: needs a schedule of its operations"):
        annotate_function(found, Schedule("other", ("host",), (), ()))


def test_a_function_is_found_by_its_name() -> None:
    both = TEXT.replace('"builtin.module"() ({', '"builtin.module"() ({\n' + other_function(), 1)
    module = parse_foreign_module(both)
    assert function_of(module, "other").sym_name.data == "other"
    with pytest.raises(PlacementError, match="needs one function, or its name; has other, two_branches"):
        function_of(module)
    with pytest.raises(PlacementError, match="needs a function third; has other, two_branches"):
        function_of(module, "third")


def other_function() -> str:
    whole = function(RETURN).replace('"f"', '"other"')
    return whole.removeprefix('"builtin.module"() ({ ').removesuffix(" }) : () -> ()")
