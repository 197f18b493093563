"""A chip file that asks for more than the instruction set has is refused before anything is compiled."""

from __future__ import annotations

from pathlib import Path

import pytest

from codegen.neuralscale.emit.limits import unsuited
from dsa_sched.stages.targets import target_of
from hw_models.errors import TargetError
from hw_models.loading import load_chip
from tests.small_models import one_node, save

BUILTIN = Path(__file__).parents[3] / "hw_models" / "chips" / "stcp920.yaml"


def test_the_shipped_chip_suits() -> None:
    assert unsuited(load_chip("stcp920")) == ()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("cores_per_cluster: 8", "cores_per_cluster: 9", "cores_per_cluster is 9; at most 8"),
        ("engines_per_cluster: 2", "engines_per_cluster: 4", "dma.engines_per_cluster is 4; at most 2"),
        ("size_bytes: 8_388_608", "size_bytes: 16_777_216", "LLB has 16777216 bytes; its address space holds 8388608"),
        ("size_bytes: 3_221_225_472", "size_bytes: 4_294_967_296", "DDR has 4294967296 bytes"),
        ("size_bytes: 3_221_225_472", "size_bytes: 67_108_864", "DDR has 67108864 bytes; more than 67108864"),
        ("alignment_bytes: 2 ", "alignment_bytes: 64 ", "alignment_bytes of LLB is 64; at most 2"),
        ("channels_per_engine: 2", "channels_per_engine: 1", "dma.channels_per_engine is 1; 2"),
        ("max_rows: 65_535", "max_rows: 65_536", "dma.max_rows is 65536; at most 65535"),
        ("gather: true", "gather: false", "dma.gather is false"),
        (
            "{dtype: float16, per_unit_per_cycle: 1}",
            "{dtype: int16, per_unit_per_cycle: 1}",
            "engine vector has no rate",
        ),
    ],
)
def test_what_the_instruction_set_has_not_is_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    text = BUILTIN.read_text()
    assert old in text
    path = tmp_path / "chip.yaml"
    path.write_text(text.replace(old, new))
    with pytest.raises(TargetError, match=said):
        target_of(load_chip(str(path)))


def test_one_descriptor_at_a_time_still_compiles(tmp_path: Path) -> None:
    """Two channels share the descriptors of an engine; each keeps at least one."""
    import dsa_sched

    path = tmp_path / "chip.yaml"
    path.write_text(BUILTIN.read_text().replace("max_descriptors: 170", "max_descriptors: 1"))
    model = save(one_node("Relu"), tmp_path / "m.onnx")
    assert dsa_sched.compile(model, path, level="O0").manifest.programs
