"""A target outside the packages that computes in singles and gives a bound: verify judges it by that."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from codegen.judgement import rounded_sum_error
from codegen.target import Execution
from dsa_sched.artifact.format import Artifact
from dsa_sched.cli import cli
from dsa_sched.pipeline.driver import compile_model
from dsa_sched.stages.compilation import CompileOptions
from dsa_sched.verification.evidence import Loads
from dsa_sched.verification.verdict import BoundedLevelResult
from dsa_sched.verification.verify import VerifyOptions, reference_builds, simulator, verify_compiled
from dsa_sched.zoo import seeded_inputs
from partitioner.planners.levels import O2
from tests.dsa_sched.frontend.onnx_models import ModelBuilder
from tests.wide_target import chip_text

ENTRY_POINTS = """
[dsa_sched.targets]
wide-v1 = tests.wide_target:TARGET
promises-v1 = tests.wide_target:PROMISES
careless-v1 = tests.wide_target:CARELESS
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what `pip install` would leave of the targets, and the network."""
    folder = tmp_path / "wide-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: wide\nVersion: 1.0\n", encoding="utf-8")
    (folder / "entry_points.txt").write_text(ENTRY_POINTS, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    b = ModelBuilder(opset=20)
    x = b.input(1, 6, 40)
    wide = b.node("Gelu", b.node("MatMul", x, b.weights(40, 24), name="widen"), name="curve")
    y = b.node("MatMul", b.node("Relu", wide, name="cut"), b.weights(24, 40), name="narrow")
    b.save(tmp_path, b.node("Add", y, x, name="sum"))
    return tmp_path


def verified(folder: Path, isa: str, level: str) -> Result:
    chip = folder / "chip.yaml"
    chip.write_text(chip_text(isa), encoding="utf-8")
    return CliRunner().invoke(cli, ["verify", str(folder / "small.onnx"), "--chip", str(chip), "--level", level])


@pytest.mark.parametrize("level", ["O0", "O1", "O2"])
def test_sums_in_any_order_are_within_the_bound(level: str, installed: Path) -> None:
    done = verified(installed, "wide-v1", level)
    assert done.exit_code == 0, done.output
    assert "in bound" in done.stdout


def test_whoever_is_not_exact_may_not_say_so(installed: Path) -> None:
    done = verified(installed, "promises-v1", "O0")
    assert done.exit_code == 3
    assert "failed: layer widen: " in done.stdout
    assert "samples differ from the emulation" in done.stdout


def test_an_error_above_the_bound_fails(installed: Path) -> None:
    """Sums in halves are near enough for the bound of layers, 1.5 %, and for that of the logits."""
    done = verified(installed, "careless-v1", "O0")
    assert done.exit_code == 3
    failed = [line for line in done.stdout.splitlines() if line.startswith("failed: ")]
    assert [line.split()[2].rstrip(":") for line in failed] == ["widen", "narrow"]
    assert all("is allowed" in line and "relative error" not in line for line in failed)


def test_a_level_is_judged_by_what_it_stored_and_what_is_emulated_between(installed: Path) -> None:
    """At O2 most values stay on the cores: the output follows from the input through whole emulated layers, each with
    what the bound allows of it. A wrong element is found, one within the bound is not held against it."""
    (installed / "chip.yaml").write_text(chip_text("wide-v1"), encoding="utf-8")
    options = CompileOptions(O2(), keep_values=True)
    whole = compile_model(installed / "small.onnx", installed / "chip.yaml", options)
    isolated, plain = reference_builds(whole)
    feeds = tuple(seeded_inputs(whole.model.source, 2, 0))
    output = whole.artifact.tensor(whole.model.graph.outputs[0])
    where = (output.address, output.bytes)

    def judged(error: float) -> tuple[str, ...]:
        """Failures when the first element of the level's output is off by this."""

        def run(artifact: Artifact, loads: Loads, dumps: tuple[tuple[int, int], ...], seed: int) -> Execution:
            done = simulator(artifact, loads, dumps, seed)
            if artifact is not whole.artifact:
                return done
            values = np.frombuffer(done.memory[where], np.float32).copy()
            values[0] += np.float32(error)
            return replace(done, memory={**done.memory, where: values.tobytes()})

        report = verify_compiled(whole, isolated, feeds, VerifyOptions(samples=1024), run, plain=plain)
        assert isinstance(report.against_o0, BoundedLevelResult)
        assert (report.against_o0.values, report.against_o0.outputs, report.exact) == (1, 1, False)
        return report.failures

    assert judged(0.0) == ()
    assert judged(1e-6) == ()
    (failure,) = judged(0.01)
    assert failure.startswith("level O2: 2 of 480 samples of v4 are beyond the bound, first at [0, 0, 0] of v4 for ")


def test_the_bound_of_halves_that_are_summed_in_singles() -> None:
    values, magnitudes = np.array([0.0, -3.0]), np.array([1.0, 8.0])
    found = rounded_sum_error(values, magnitudes, 64, stored="float16", summed="float32")
    assert found.tolist() == [2.0**-25 + 64 * 2.0**-23, 3 * 2.0**-11 + 2.0**-25 + 64 * 2.0**-23 * 8]


def test_no_order_of_sums_is_beyond_the_bound_and_another_type_is() -> None:
    random = np.random.default_rng(0)
    a, b = random.standard_normal((2, 400, 300)).astype(np.float16)
    products = a.astype(np.float32) * b.astype(np.float32)
    numbers, magnitudes = products.astype(np.float64).sum(1), np.abs(products).astype(np.float64).sum(1)
    allowed = rounded_sum_error(numbers, magnitudes, 300, stored="float16", summed="float32")
    for _ in range(5):
        sums = np.add.accumulate(random.permuted(products, axis=1), axis=1, dtype=np.float32)[:, -1]
        assert (np.abs(sums.astype(np.float16) - numbers) <= allowed).all()
    halves = np.add.accumulate(products.astype(np.float16), axis=1, dtype=np.float16)[:, -1]
    assert (np.abs(halves - numbers) > allowed).mean() > 0.5
