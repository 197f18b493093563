"""`--tune`: which candidates are timed, what is kept of it, and that the fastest one is taken."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from codegen.target import ClusterFiles
from dsa_sched.io.cost_cache import CostCache
from dsa_sched.pipeline.driver import compile_model, plan_model
from dsa_sched.search.tuning import tuned
from dsa_sched.stages.compilation import CompileOptions
from hw_models.cache import Cache
from hw_models.chip import Chip
from hw_models.errors import TargetError
from partitioner.context.plan_context import KernelContext
from partitioner.ir.graph import Graph
from partitioner.ir.kernels import Kernel
from partitioner.ir.layers import Layer
from partitioner.ir.plan import Plan
from partitioner.planners.levels import FusedKernels
from partitioner.planners.registry import make_kernel_plan
from partitioner.verification.kernel_plan import verify_kernel_plan
from tests.partitioner.kernel_networks import Moves, gpu_context, network
from tests.small_models import one_node, save

US = 1e-6


@dataclass(frozen=True)
class Tiles(Moves):
    """Five tiles for each layer, each a microsecond slower than the one before."""

    def kernels(self, graph: Graph, layers: tuple[Layer, ...], chip: Chip) -> tuple[Kernel, ...]:
        found = super().kernels(graph, layers, chip)
        return tuple(
            replace(kernel, parameters=(("tile", tile),), launch_seconds=tile * US, tile=(1, tile, 1, 1))
            for kernel in found
            for tile in (3, 1, 2, 4, 5)
        )


@dataclass
class Device:
    """Takes `ns[tile]` for a kernel; counts how often it is asked."""

    ns: dict[int, int]
    identity: str = "a device, its driver, a compiler"
    asked: list[tuple[int, ...]] = field(default_factory=list)
    closed: bool = False

    def parts(self, files: ClusterFiles) -> tuple[str, ...]:
        return tuple(hashlib.sha256(f"{k} {tile}".encode()).hexdigest() for k, tile in enumerate(_tiles(files)))

    def times_ns(self, files: ClusterFiles) -> tuple[int, ...]:
        self.asked.append(_tiles(files))
        return tuple(self.ns[tile] for tile in _tiles(files))

    def close(self) -> None:
        self.closed = True


def emit(plan: Plan) -> ClusterFiles:
    kernels = [plan.group_by_name[step.group].kernel for step in plan.steps]
    text = json.dumps([int(kernel.removeprefix("moves(tile=").removesuffix(")")) for kernel in kernels if kernel])
    return ClusterFiles(0, "kernels", {"kernels": text.encode()})


def _tiles(files: ClusterFiles) -> tuple[int, ...]:
    return tuple(json.loads(files.files["kernels"]))


def example() -> tuple[KernelContext, Plan]:
    ctx = gpu_context(network("a x", "v a", "b v"), Tiles(lambda _: 0, lambda names: US if len(names) == 1 else None))
    return ctx, make_kernel_plan(ctx, FusedKernels())


def tiles(plan: Plan) -> tuple[int, ...]:
    return _tiles(emit(plan))


def test_the_fastest_of_three_is_taken() -> None:
    ctx, plan = example()
    assert tiles(plan) == (1, 1)
    device = Device({1: 9_000, 2: 4_000, 3: 5_000, 4: 1, 5: 1})
    found = tuned(plan, ctx, (), device, emit, None)
    assert device.asked == [(1, 1), (2, 2), (3, 3)]
    assert tiles(found) == (2, 2)
    verify_kernel_plan(found, ctx)
    said = [str(decision) for decision in found.decisions if decision.subject == "a0"]
    assert said == [
        "a0: computed by moves(tile=2): 1 launch, 3.000 us at least, launch binds",
        "a0: tuned: moves(tile=2): measured 4.000 us, moves(tile=3) 5.000 us, moves(tile=1) 9.000 us, on a device, its "
        "driver, a compiler",
    ]


def test_of_equally_fast_ones_the_models_choice_stays() -> None:
    ctx, plan = example()
    found = tuned(plan, ctx, (), Device({1: 5, 2: 5, 3: 5}), emit, None)
    assert found.groups == plan.groups
    assert found.steps == plan.steps


def test_what_was_measured_is_not_measured_again(tmp_path: Path) -> None:
    ctx, plan = example()
    times, device = CostCache(Cache(tmp_path)), Device({1: 9, 2: 4, 3: 5})
    first = tuned(plan, ctx, (), device, emit, times)
    again = Device({})
    assert tuned(plan, ctx, (), again, emit, times) == first
    assert again.asked == []
    other = Device({1: 1, 2: 2, 3: 3}, identity="another driver")
    assert tiles(tuned(plan, ctx, (), other, emit, times)) == (1, 1)
    assert len(other.asked) == 3


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"ns": 1}', b"[" * 100_000, b"\xff"])
def test_a_damaged_time_is_measured_again(tmp_path: Path, damage: bytes) -> None:
    ctx, plan = example()
    times = CostCache(Cache(tmp_path))
    first = tuned(plan, ctx, (), Device({1: 9, 2: 4, 3: 5}), emit, times)
    for file in tmp_path.iterdir():
        file.write_bytes(damage)
    device = Device({1: 9, 2: 4, 3: 5})
    assert tuned(plan, ctx, (), device, emit, times) == first
    assert len(device.asked) == 3


def test_a_time_of_another_part_is_not_taken(tmp_path: Path) -> None:
    """A file under the name of another one was not written for it."""
    ctx, plan = example()
    times = CostCache(Cache(tmp_path))
    tuned(plan, ctx, (), Device({1: 9, 2: 4, 3: 5}), emit, times)
    files = sorted(tmp_path.iterdir())
    files[1].write_bytes(files[0].read_bytes())
    device = Device({1: 9, 2: 4, 3: 5})
    tuned(plan, ctx, (), device, emit, times)
    assert len(device.asked) == 1


def test_without_a_gpu_it_says_so_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)
    model = save(one_node("Relu"), tmp_path / "relu.onnx")
    said = "times of kernels: needs an NVIDIA GPU; has none that works: needs cuda-bindings: pip install"
    with pytest.raises(TargetError, match=said):
        plan_model(model, "a100", CompileOptions(tune=True))


def test_targets_without_a_device_to_time_on_are_told() -> None:
    said = "--tune: needs a target whose kernels can be timed on their device; has neuralscale-v1"
    for ask in (plan_model, compile_model):
        with pytest.raises(TargetError, match=said):
            ask("squeezenet", "stcp920", CompileOptions(tune=True))


@pytest.mark.commit
def test_the_command_line_has_it(tmp_path: Path) -> None:
    model = save(one_node("Relu"), tmp_path / "relu.onnx")
    for words in (["compile", "--print", "plan"], ["explain"], ["verify"]):
        done = subprocess.run(
            [sys.executable, "-m", "dsa_sched", words[0], str(model), *words[1:], "--chip", "stcp920", "--tune"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1
        assert "error: --tune: needs a target whose kernels can be timed" in done.stderr
