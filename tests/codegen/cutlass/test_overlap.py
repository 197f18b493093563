"""Kernels may overlap if each waits for those before it: read from PTX, and true of all that is emitted for Hopper."""

from __future__ import annotations

from pathlib import Path

import pytest

from codegen.cutlass.emission.emit import LAUNCHES
from codegen.cutlass.emission.overlap import waits_first
from codegen.cutlass.ptx import parse
from codegen.cutlass.runner.runner import parse_launches
from dsa_sched.pipeline.driver import compile_model
from dsa_sched.stages.compilation import CompileOptions
from partitioner.planners.levels import O0
from tests.codegen.cutlass.families.networks import Network
from tests.small_models import save

HEAD = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 at)
{
  .reg .b64 %a<3>;
  .reg .b32 %r<3>;
  .reg .pred %p<2>;
"""
WAIT = "griddepcontrol.wait;"
READS = "ld.param.u64 %a1, [at]; cvta.to.global.u64 %a2, %a1;"


@pytest.mark.parametrize(
    ("body", "waits"),
    [
        (f"{READS} griddepcontrol.launch_dependents; {WAIT} ld.global.u32 %r1, [%a2]; ret;", True),
        (f"mov.u32 %r1, %tid.x; {WAIT} ret;", True),
        (f"{READS} ld.global.u32 %r1, [%a2]; {WAIT} ret;", False),
        (f"{READS} st.global.u32 [%a2], 1; {WAIT} ret;", False),
        (f"setp.eq.u32 %p1, %r1, 0; @%p1 {WAIT} ret;", False),
        (f"setp.eq.u32 %p1, %r1, 0; @%p1 bra END; {WAIT} END: ret;", False),
        (f"BEGIN: {WAIT} ret;", False),
        ("griddepcontrol.launch_dependents; ret;", False),
        ("ret;", False),
    ],
)
def test_only_a_wait_before_every_access_counts(body: str, waits: bool) -> None:
    assert waits_first(parse(f"{HEAD} {body} }}").kernels["k"]) == waits


@pytest.mark.parametrize(("chip", "overlaps"), [("h200", True), ("a100", False)])
def test_networks_for_hopper_overlap(chip: str, overlaps: bool, tmp_path: Path) -> None:
    net = Network([("x", (1, 3, 12, 12))])
    y = net.add("Relu", net.conv("x", 16, 3, strides=[2, 2]))
    y = net.conv(net.conv(y, 16, 3, group=16), 8, 1)
    y = net.add("Softmax", net.add("GlobalAveragePool", y), axis=1)
    done = compile_model(save(net.model(y), tmp_path / "net.onnx"), chip, CompileOptions(O0()))
    assert parse_launches(done.files.files[LAUNCHES]).overlaps == overlaps
