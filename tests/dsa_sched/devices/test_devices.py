"""Devices of every kind on one small model: values, times, refusals; and what is said where one is absent."""

from __future__ import annotations

import importlib
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import helper

from dsa_sched.devices.chip_device import COMPILER, ChipCluster
from dsa_sched.devices.cuda_device import CudaGpu, bound
from dsa_sched.devices.device import Device, Refused, drawn_feeds
from dsa_sched.devices.onnxruntime_device import OnnxruntimeCpu, SessionPart
from dsa_sched.devices.opening import RooflineSimulator, open_devices
from dsa_sched.devices.tvm_device import TvmCpu
from dsa_sched.io.source_hash import source_hash
from dsa_sched.placement.model.from_onnx import TaskPart, task_model_of
from dsa_sched.placement.model.scenario import Roofline, parse_scenario
from hw_models.errors import PlacementError
from tests.placement_models import model_of, two_towers

ROOFLINE = Roofline(flops_per_second=1e9, bytes_per_second=1e9, launch_us=1)

DEVICES: tuple[Device, ...] = (
    OnnxruntimeCpu("one thread"),
    OnnxruntimeCpu("plain, all threads", 0, optimise=False),
    TvmCpu("tvm"),
    ChipCluster("npu", "stcp920", launch_us=7),
    RooflineSimulator("numbers", ROOFLINE),
)


@pytest.fixture(scope="module")
def part() -> TaskPart:
    return task_model_of(two_towers()).whole


@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device.name)
@pytest.mark.commit
def test_every_kind_computes_what_onnxruntime_does(device: Device, part: TaskPart) -> None:
    assert device.accepts(part) is None
    compiled = device.compile(part)
    feeds = drawn_feeds(part)
    reference: Any = onnxruntime.InferenceSession(part.model.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = dict(zip(part.outputs, reference.run(list(part.outputs), feeds), strict=True))
    found = device.run(compiled, feeds)
    tolerance = 2e-2 if isinstance(device, ChipCluster) else 1e-4  # chips compute in half precision
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_allclose(found[name], array, rtol=tolerance, atol=tolerance * np.abs(array).max())
    assert device.profile(compiled) > 0
    assert device.identity != ""


def test_simulated_devices_count_their_own_time(part: TaskPart) -> None:
    """The work of each layer and one launch of 1 us by the roofline; cycles of the chip, and a launch of its own or the
    one that is given."""
    launched, endless = DEVICES[-1], RooflineSimulator("numbers", ROOFLINE.model_copy(update={"launch_us": 0.0}))
    assert launched.profile(launched.compile(part)) - endless.profile(endless.compile(part)) == 1000
    slow, quick = ChipCluster("npu", "stcp920", launch_us=7), ChipCluster("npu", "stcp920")
    assert (slow.launch_ns, quick.launch_ns) == (7000, 20_000)
    assert slow.identity == quick.identity


def test_identities_tell_settings_apart() -> None:
    settings: list[Device] = [
        OnnxruntimeCpu("a"),
        OnnxruntimeCpu("a", 2),
        OnnxruntimeCpu("a", 1, False),
        TvmCpu("a"),
        TvmCpu("a", "x"),
    ]
    assert len({device.identity for device in settings}) == len(settings)
    assert OnnxruntimeCpu("a").identity == OnnxruntimeCpu("b").identity


def test_the_identity_of_a_chip_is_that_of_its_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one that is the same but for a line: another. Of the same one at another place: the same."""
    folder = tmp_path / "compiler"
    (folder / "inner").mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "inner" / "rules.py").write_text("a = 1\n")
    same = shutil.copytree(folder, tmp_path / "same" / "compiler")
    other = shutil.copytree(folder, tmp_path / "other" / "compiler")
    (other / "inner" / "rules.py").write_text("a = 2\n")
    found = []
    for place in (folder, same, other):
        monkeypatch.setattr(sys, "path", [str(place.parent), *sys.path])
        importlib.invalidate_caches()
        found.append(source_hash(("compiler",)))
    assert found[0] == found[1] != found[2]
    assert source_hash(COMPILER) in ChipCluster("npu", "stcp920").identity


def test_chips_refuse_what_the_compiler_does_not_know() -> None:
    volumes = task_model_of(model_of([helper.make_node("Det", ["x"], ["y"], "det")], {"x": (5, 6, 6)}, ["y"]))
    chip = ChipCluster("npu", "stcp920")
    assert "Det" in str(chip.accepts(volumes.whole))
    with pytest.raises(Refused, match="Det"):
        chip.compile(volumes.whole)
    assert OnnxruntimeCpu("cpu").accepts(volumes.whole) is None


def test_integers_go_to_chips() -> None:
    nodes = [helper.make_node("ArgMax", ["x"], ["i"], "arg")]
    nodes += [helper.make_node("Cast", ["i"], [name], name, to=1) for name in ("y", "z")]
    tasks = task_model_of(model_of(nodes, {"x": (2, 3)}, ["y", "z"]))
    part = tasks.part(tasks.graph.tasks[2])
    chip = ChipCluster("npu", "stcp920", level="O1")
    assert chip.accepts(part) is None
    assert chip.run(chip.compile(part), {"i": np.array([[1, 0, 1]])})["y"].tolist() == [[1, 0, 1]]
    assert drawn_feeds(part)["i"].tolist() == [[0, 0, 0]]


def test_what_a_compiler_cannot_do_is_a_refusal() -> None:
    nodes = [helper.make_node("Det", ["x"], ["y"], "det")]
    part = task_model_of(model_of(nodes, {"x": (3, 3)}, ["y"])).whole
    with pytest.raises(Refused):
        TvmCpu("tvm").compile(part)


def test_a_gpu_that_is_not_there_is_named() -> None:
    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("this machine has one")
    scenario = parse_scenario(
        "schema_version: 1\nname: s\ndescription: d\ndevices:\n  - {kind: cuda, name: gpu}\n", "s.yaml"
    )
    with pytest.raises(
        PlacementError, match=r"device gpu: needs onnxruntime with its CUDAExecutionProvider; has .*CPU"
    ):
        open_devices(scenario)
    assert CudaGpu.__doc__


def test_places_that_stay_fixed_give_the_same_values(part: TaskPart) -> None:
    """What CUDA graphs need, on the processor: inputs and outputs bound once, run again with other values."""
    compiled = OnnxruntimeCpu("cpu").compile(part)
    assert isinstance(compiled, SessionPart)
    fixed = bound(compiled, "cpu", 0)
    for seed in (0, 1):
        feeds = drawn_feeds(part, seed)
        expected = OnnxruntimeCpu("cpu").run(compiled, feeds)
        for name, array in fixed.run(feeds).items():
            np.testing.assert_array_equal(array, expected[name])
