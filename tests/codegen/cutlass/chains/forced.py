"""A network whose layers become one kernel of a given template, judged on the executor.

model, "cutlass_pair"  --fused families but that one hidden, level O3-->  VerifyReport of one group
"""

from __future__ import annotations

import re
from pathlib import Path
from types import MappingProxyType

import onnx
import pytest

import hw_models
from codegen.cutlass import rules
from codegen.cutlass.emission import emit
from codegen.cutlass.families import registry
from dsa_sched.pipeline.driver import plan_model
from dsa_sched.stages.compilation import CompileOptions
from dsa_sched.verification.verdict import VerifyReport
from partitioner.ir.kernels import read_kernel
from partitioner.planners.levels import O3
from tests.codegen.cutlass.families.networks import judged
from tests.small_models import save

__all__ = ["by_floors", "judged_as", "only", "slow_launches"]

FUSED = "codegen.cutlass.families.fused."


def only(patch: pytest.MonkeyPatch, template: str) -> None:
    """Of all fused families the target offers this one."""
    kept = {
        name: family
        for name, family in registry.FAMILIES.items()
        if name == template or not type(family).__module__.startswith(FUSED)
    }
    assert template in kept
    for module in (registry, emit, rules):  # each has the table under this name
        patch.setattr(module, "FAMILIES", MappingProxyType(kept))


def by_floors(chip: str, folder: Path) -> Path:
    """The chip without rates of kinds of kernels: plans go by floors."""
    text = (Path(hw_models.__file__).parent / "chips" / f"{chip}.yaml").read_text(encoding="utf-8")
    file = folder / f"{chip}.yaml"
    file.write_text(text.partition("  kernels:\n")[0], encoding="utf-8")
    return file


def slow_launches(chip: str, folder: Path) -> Path:
    """The chip with launches that take so long that layers are taken together wherever there is a kernel for them."""
    text = (Path(hw_models.__file__).parent / "chips" / f"{chip}.yaml").read_text(encoding="utf-8")
    file = folder / f"{chip}.yaml"
    file.write_text(re.sub(r"launch_us: [\d.]+", "launch_us: 1000000", text), encoding="utf-8")
    return file


def judged_as(
    template: str, model: onnx.ModelProto, folder: Path, patch: pytest.MonkeyPatch, chip: str = "a100"
) -> VerifyReport:
    """The report of a network of one group, which that template computes."""
    only(patch, template)
    file = slow_launches(chip, folder)
    (group,) = plan_model(save(model, folder / "net.onnx"), file, CompileOptions(O3())).plan.groups
    assert read_kernel(group.kernel)[0] == template
    return judged(model, folder, str(file), level="O3", samples=1024)
