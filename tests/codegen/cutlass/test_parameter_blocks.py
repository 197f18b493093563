"""Parameter blocks of CUTLASS's convolution as its own kernel makes them, against what a program of the host makes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from codegen.cutlass.emission.nvcc import Compiler
from codegen.cutlass.emission.parameter_blocks import ParameterBlock, parameter_blocks
from codegen.cutlass.families.registry import FAMILIES
from codegen.cutlass.kernel.family import KernelWork
from codegen.cutlass.kernel.launches import ComputedLaunch, Launch, Source
from codegen.cutlass.ptx import Module, parse
from dsa_sched.pipeline.driver import plan_model
from dsa_sched.stages.compilation import CompileOptions
from dsa_sched.stages.kernel_stages import PlannedKernels
from hw_models.errors import TargetError
from partitioner.planners.levels import O0
from tests.dsa_sched.frontend.onnx_models import ModelBuilder

PROGRAM = """
#include <cstdio>
#include <cstdlib>
int main(int count, char** given) {
  Numbers numbers = {};
  for (int i = 1; i < count; ++i) numbers.v[i - 1] = std::atoi(given[i]);
  int head[HEAD];
  alignas(64) static unsigned char bytes[MOST_BYTES];
  describe(numbers, head, bytes);
  for (int i = 1; i < HEAD; ++i) std::printf("%d ", head[i]);
  for (int i = 0; i < head[0]; ++i) std::printf("%02x", bytes[i]);
}
"""


@pytest.fixture(scope="module")
def launches(tmp_path_factory: pytest.TempPathFactory) -> tuple[ComputedLaunch, ...]:
    """Of convolutions that differ in shape, strides, paddings, dilations and bias, all by one kernel."""
    b = ModelBuilder()
    settings = (
        ((2, 16, 9, 11), (24, 16, 3, 3), {"pads": [1, 1, 1, 1]}, True),
        ((1, 8, 40, 37), (64, 8, 7, 7), {"pads": [3, 3, 3, 3], "strides": [2, 2]}, False),
        ((3, 32, 17, 5), (40, 32, 1, 1), {"strides": [2, 2]}, True),
        ((1, 24, 30, 31), (8, 24, 3, 5), {"pads": [1, 2, 1, 2], "dilations": [2, 2]}, True),
    )
    outputs = []
    for shape, filters, attributes, bias in settings:
        operands = [b.input(*shape), b.weights(*filters), *([b.weights(filters[0])] if bias else [])]
        outputs.append(b.node("Conv", *operands, attributes=attributes))
    plan = plan_model(b.save(tmp_path_factory.mktemp("blocks"), *outputs), "a100", CompileOptions(O0()))
    assert isinstance(plan, PlannedKernels)
    ctx = plan.context
    found: list[Launch | ComputedLaunch] = []
    for group in plan.plan.groups:
        work = KernelWork(ctx.graph, group.layers, ctx.chip)
        found += FAMILIES["conv2d"].launches(work, {"tile": "64x64"}, ctx.constants)
    computed = tuple(launch for launch in found if isinstance(launch, ComputedLaunch))
    assert len(computed) == len(found) == len(settings)
    assert len({launch.source for launch in computed}) == 1
    return computed


@pytest.fixture(scope="module")
def blocks(launches: tuple[ComputedLaunch, ...], compiler: Compiler) -> dict[ComputedLaunch, ParameterBlock]:
    source = launches[0].source
    return parameter_blocks(launches, {source: parse(compiler.ptx(source.text, "80", cutlass=True, name=source.name))})


@pytest.mark.commit
def test_grids_cover_rows_and_columns_of_the_result(
    launches: tuple[ComputedLaunch, ...], blocks: dict[ComputedLaunch, ParameterBlock]
) -> None:
    """Pixels of all images by 64, filters by 64."""
    assert [blocks[launch].grid for launch in launches] == [(4, 1, 1), (6, 1, 1), (2, 1, 1), (12, 1, 1)]
    assert {(block.threads, block.shared_bytes) for block in blocks.values()} == {(128, 32_768)}


@pytest.mark.slow
def test_the_host_makes_the_same_parameters(
    launches: tuple[ComputedLaunch, ...],
    blocks: dict[ComputedLaunch, ParameterBlock],
    compiler: Compiler,
    tmp_path: Path,
) -> None:
    source = launches[0].source
    program = tmp_path / "program"
    program.write_bytes(compiler.program(source.text + PROGRAM, cutlass=True, name=source.name))
    program.chmod(0o700)
    for launch in launches:
        said = subprocess.run([program, *map(str, launch.numbers)], capture_output=True, text=True, check=True).stdout
        shared, threads, x, y, z, parameters = said.split()
        made = blocks[launch]
        assert (made.shared_bytes, made.threads, *made.grid) == (int(shared), int(threads), int(x), int(y), int(z))
        block = bytearray.fromhex(parameters)
        for mark in made.marks:
            address = int.from_bytes(block[mark.at : mark.at + 8], "little")
            assert address == (mark.place + 1 << 40) + mark.plus_bytes
            block[mark.at : mark.at + 8] = bytes(8)
        assert made.parameters == bytes(block)


def test_a_number_that_looks_like_a_mark_is_none(
    blocks: dict[ComputedLaunch, ParameterBlock], launches: tuple[ComputedLaunch, ...], compiler: Compiler
) -> None:
    """A row of 197,902,400 pixels of eight channels: its stride is 0x5e5e0200."""
    source = launches[0].source
    width = 197_902_400
    numbers = (1, 1, width, 8, 24, 1, 3, 1, width - 2, 0, 0, 1, 1, 1, 1, 8, 24, 8 * width, 1)
    wide = ComputedLaunch(source, "convolution", numbers, launches[0].places)
    module = parse(compiler.ptx(source.text, "80", cutlass=True, name=source.name))
    made = parameter_blocks([wide], {source: module})[wide]
    assert (0x5E5E0200).to_bytes(8, "little") in made.parameters
    assert made.marks == blocks[launches[0]].marks


def test_a_source_without_such_a_kernel_is_named(simple: Module) -> None:
    source = Source("simple", "")
    with pytest.raises(TargetError, match=r"kernel simple: needs parameters made .*has .*no kernel parameters"):
        parameter_blocks([ComputedLaunch(source, "map", (1,), ())], {source: simple})
