"""Chips of kind gpu: published figures of the built-in ones, what a file must say, what such a chip can be asked."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

import pytest
from click.testing import CliRunner

from dsa_sched.cli import cli
from hw_models.chip import Chip
from hw_models.chip_rules import parts_of_kind
from hw_models.cost import dma_cycles, matrix_cycles, transfer_cycles, vector_cycles
from hw_models.errors import ChipError
from hw_models.loading import inspect_chip, load_chip, parse_chip

FOLDER = resources.files("hw_models") / "chips"
A100 = (FOLDER / "a100.yaml").read_text(encoding="utf-8")
STCP920 = (FOLDER / "stcp920.yaml").read_text(encoding="utf-8")
STCP920_HASH = "ac2e2a80382c531e4317e0e90cc2bc0605124ac7a07a8c07f5dad8c547f6f56a"
"""Before chips had kinds and instruction caches; executables carry it."""


def edited(text: str, *edits: tuple[str, str]) -> str:
    """The text with the first occurrence of each old part replaced; fails when there is none."""
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new, 1)
    return text


def problems(text: str) -> list[str]:
    """The findings about a file, without its name; each begins with its line."""
    with pytest.raises(ChipError) as caught:
        parse_chip(text, "c.yaml")
    return [problem.text("").removeprefix(":") for problem in caught.value.problems]


def line_of(text: str, part: str) -> int:
    return text[: text.index(part)].count("\n") + 1


@pytest.mark.parametrize(
    ("name", "instruction", "tensor_flops", "fp32_flops", "hbm_bytes"),
    [("a100", "mma", 312e12, 19.5e12, 1.555e12), ("h200", "wgmma", 989.4e12, 61.8e12, 3.977e12)],
)
def test_the_organisation_gives_the_published_peaks(
    name: str, instruction: str, tensor_flops: float, fp32_flops: float, hbm_bytes: float
) -> None:
    """The H200's fp32 peak is 67 TFLOP/s at its highest clock; the file's is that of the fp16 peak. Its main memory has
    the bandwidth that copies reached, of 4.8 TB/s."""
    chip = load_chip(name)
    rate = 2 * chip.cores * chip.clock_hz
    assert rate * chip.tensor.macs_per_cycle(instruction, "float16") == pytest.approx(tensor_flops, rel=1e-3)
    assert rate * chip.lanes.elements_per_cycle("float32") == pytest.approx(fp32_flops, rel=2e-3)
    bandwidth = chip.memory("HBM").bandwidth_bytes_per_cycle
    assert bandwidth is not None
    assert bandwidth * chip.clock_hz == pytest.approx(hbm_bytes, rel=1e-3)


@pytest.mark.parametrize(("name", "block_kib", "core_kib"), [("a100", 163, 164), ("h200", 227, 228)])
def test_a_block_leaves_one_kib_of_the_shared_memory(name: str, block_kib: int, core_kib: int) -> None:
    chip = load_chip(name)
    shared = chip.memory(chip.simt.shared_memory)
    assert (chip.simt.shared_bytes_per_block, shared.size_bytes) == (block_kib << 10, core_kib << 10)
    assert not shared.persists
    assert chip.memory(chip.simt.cache).persists


def test_kinds_and_parts_that_a_file_does_not_name_are_not_in_its_hash() -> None:
    plain = re.sub(r"    instruction_cache:\n(?: {6,}.*\n)+", "", STCP920)
    chip = parse_chip(plain, "c.yaml")
    assert chip.hash == STCP920_HASH
    assert load_chip("stcp920").hash != STCP920_HASH
    dumped = chip.model_dump(mode="json")
    assert not {"kind", "simt"} & set(dumped)
    assert not any("persists" in memory for memory in dumped["memories"])
    assert not any("instruction_cache" in engine for engine in dumped["engines"])
    explicit = edited(plain, ("isa: neuralscale", "kind: cores\nisa: neuralscale"), ("scope: core", PERSISTS_CORE))
    assert parse_chip(explicit, "c.yaml").hash == STCP920_HASH
    lost = edited(plain, ("scope: core", "persists: false\n    scope: core"))
    assert parse_chip(lost, "c.yaml").hash != STCP920_HASH


PERSISTS_CORE = "persists: true\n    scope: core"


def test_a_gpu_survives_its_own_json() -> None:
    chip = load_chip("a100")
    assert Chip.model_validate_json(chip.model_dump_json()) == chip
    assert {"kind", "simt"} <= set(chip.model_dump())
    assert not {"dma", "assumed"} & set(chip.model_dump())


@pytest.mark.parametrize("part", ["dma", "assumed"])
def test_a_missing_part_of_an_array_of_cores_is_told_with_all_other_problems(part: str) -> None:
    text = edited(STCP920, (f"\n{part}:\n", "\ngone:\n"), ("clusters: 4", "clusters: none"))
    assert [line.split(": ", 1)[1] for line in problems(text) if "gone" not in line] == [
        f"{part}: missing; an array of cores (kind: cores) needs this field",
        "clusters: 'none' should be a valid integer; write a whole number such as 1_048_576",
    ]


def test_links_are_needed_by_an_array_of_cores() -> None:
    start, end = STCP920.index("\nlinks:"), STCP920.index("\ndma:")
    said = problems(STCP920[:start] + STCP920[end:])
    assert [line.split(": ", 1)[1] for line in said] == [
        "links: missing; an array of cores (kind: cores) needs this field"
    ]


def test_a_part_without_fields_is_not_a_missing_one() -> None:
    text = edited(A100, ("\nsimt:\n", "\nsimt:\n\nunknown:\n"))
    assert any(
        "simt: an empty value should be an object; write fields as 'name: value'" in line for line in problems(text)
    )


def test_a_gpu_with_the_parts_of_cores_is_told_which_are_its_own() -> None:
    text = edited(STCP920, ("isa: neuralscale", "kind: gpu\nisa: neuralscale"))
    lines = problems(text)
    number = line_of(text, "\ndma:") + 1
    assert (
        f"{number}: dma: is a part of an array of cores, and the chip is a GPU (kind: gpu); "
        "remove it, or write kind: cores; a chip of kind gpu has simt"
    ) in lines
    assert [line.split(": ")[1] for line in lines] == ["simt", "links", "dma", "assumed"]


def test_an_array_of_cores_with_the_part_of_a_gpu_is_told_how_to_make_it_one() -> None:
    text = edited(A100, ("kind: gpu\n", ""))
    (simt,) = (line for line in problems(text) if ": simt: " in line)
    assert simt == (
        f"{line_of(text, chr(10) + 'simt:') + 1}: simt: is a part of a GPU, and the chip is an array of cores "
        "(kind: cores); remove it, or write kind: gpu; a chip of kind cores has links, dma, assumed"
    )


def test_every_kind_needs_its_parts_and_no_other() -> None:
    assert [path for path, _, _ in parts_of_kind("gpu", {"simt"})] == []
    assert [path for path, _, _ in parts_of_kind("cores", {"dma", "assumed", "links"})] == []
    assert [path for path, _, _ in parts_of_kind("cores", ())] == [("links",), ("dma",), ("assumed",)]


WRONG = (
    ("kind: gpu", "kind: gpus", "kind: 'gpus' should be 'cores' or 'gpu'; did you mean 'gpu'?"),
    (
        "registers_per_core: 65_536",
        "register_per_core: 65_536",
        "simt.register_per_core: unknown field; did you mean 'registers_per_core'?",
    ),
    ("warp_threads: 32", "# warp_threads: 32", "simt.warp_threads: missing; add this field"),
    ("  launch_us: 2 ", "  launch_us: -2 ", "simt.launch_us: -2 should be greater than or equal to 0"),
    ("persists: false", "persists: 0", "memories[2].persists: 0 should be a valid boolean; write true or false"),
    (
        "shared_memory: shared",
        "shared_memory: share",
        "simt.shared_memory: there is no memory named 'share'; known: HBM, L2, shared; did you mean 'shared'?",
    ),
    (
        "shared_memory: shared",
        "shared_memory: L2",
        "simt.shared_memory: L2 belongs to the chip; give a memory of scope core",
    ),
    (
        "cache: L2",
        "cache: shared",
        "simt.cache: shared belongs to each core; give a memory of scope chip or cluster",
    ),
    (
        "persists: false",
        "persists: true",
        "memories[2].persists: shared loses its contents with its block of threads; write persists: false",
    ),
    (
        "shared_bytes_per_block: 166_912",
        "shared_bytes_per_block: 167_937",
        "simt.shared_bytes_per_block: a block takes 167937 bytes; memory shared has 167936",
    ),
    (
        "threads_per_block: 1_024",
        "threads_per_block: 4_096",
        "simt.threads_per_block: 4096 is more than threads_per_core; at most 2048",
    ),
    (
        "threads_per_block: 1_024",
        "threads_per_block: 1_000",
        "simt.threads_per_block: 1000 threads do not make whole warps; give a multiple of warp_threads, 32",
    ),
    (
        "registers_per_core: 65_536",
        "registers_per_core: 128",
        "simt.registers_per_thread: 255 is more than registers_per_core; at most 128",
    ),
    (
        "dtype: bfloat16",
        "dtype: float16",
        "engines[1].rates: mma of float16 is given twice; give one rate per instruction and type",
    ),
    (
        "{dtype: float16, per_unit",
        "{dtype: float32, per_unit",
        "engines[0].rates: type float32 is given twice; give one rate per type",
    ),
    (
        "engines:\n",
        "engines:\n  - {kind: scalar, name: host}\n",
        "engines[0]: kind 'scalar' is not an engine of a GPU; allowed: 'simt', 'tensor'",
    ),
)


@pytest.mark.parametrize(("old", "new", "said"), WRONG, ids=[said.split(";")[0] for *_, said in WRONG])
def test_a_wrong_field_of_a_gpu_is_named_with_what_is_allowed(old: str, new: str, said: str) -> None:
    assert said in [line.split(": ", 1)[1] for line in problems(edited(A100, (old, new)))]


def test_an_engine_of_a_gpu_is_none_of_an_array_of_cores() -> None:
    engine = "engines:\n  - {kind: tensor, name: t, rates: [{instruction: mma, dtype: int8, macs_per_cycle: 1}]}\n"
    (said,) = problems(edited(STCP920, ("engines:\n", engine)))
    allowed = "'scalar', 'matrix', 'vector', 'transfer', 'dma', 'sync'"
    assert said.endswith(f"engines[0]: kind 'tensor' is not an engine of an array of cores; allowed: {allowed}")


HARDLY = (
    (
        "macs_per_cycle: 1024",
        "macs_per_cycle: 1_000_000",
        "engines[1].rates[0].macs_per_cycle: 1,000,000 MACs per cycle in a core; "
        "64 to 8,192 are usual; give those of one core",
    ),
    ("lanes: 64", "lanes: 1_000_000", "engines[0].lanes: 1,000,000 lanes in a core; 8 to 2,048 are usual"),
    (
        "{dtype: float16, per_unit_per_cycle: 4}",
        "{dtype: int8, per_unit_per_cycle: 4}",
        "engines[0].rates: simt has no rate for float16; networks are computed in this type",
    ),
    (
        "registers_per_core: 65_536",
        "registers_per_core: 8_192",
        "simt.registers_per_core: 4 for each of 2,048 threads; 32 and more are usual when a core is full",
    ),
    (
        "blocks_per_core: 32",
        "blocks_per_core: 3_200",
        "simt.blocks_per_core: 3,200 blocks of 2,048 threads in all; a block has at least one thread",
    ),
    (
        "  launch_us: 2 ",
        "  launch_us: 2_000_000 ",
        "simt.launch_us: a launch takes 2 s; 1 us to some ms are usual",
    ),
    ("cache: L2", "cache: HBM", "simt.cache: HBM is the main memory, the largest of all"),
    (
        "bandwidth_bytes_per_cycle: 1102.8",
        "persists: false\n    bandwidth_bytes_per_cycle: 1102.8",
        "memories[0].persists: HBM is the main memory, and its contents are lost between kernels; "
        "weights and results must stay in it",
    ),
)


@pytest.mark.parametrize(("old", "new", "said"), HARDLY, ids=[said.split(":")[0] for *_, said in HARDLY])
def test_what_is_hardly_meant_of_a_gpu_is_told(old: str, new: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(edited(A100, (old, new)), encoding="utf-8")
    (warning,) = inspect_chip(tmp_path / "mine.yaml")[1]
    assert warning.text("").split(": ", 1)[1].startswith(said)


def test_warps_of_thousands_and_a_gpu_without_simt_are_told(tmp_path: Path) -> None:
    wide = edited(
        A100,
        ("warp_threads: 32", "warp_threads: 2_048"),
        ("threads_per_block: 1_024", "threads_per_block: 2_048"),
        ("kind: simt ", "kind: tensor "),
        ("    lanes: 64 ", "    # "),
        ("{dtype: float32, per_unit_per_cycle: 1}", "{instruction: mma, dtype: float16, macs_per_cycle: 1}"),
        ("{dtype: float16, per_unit_per_cycle: 4}", "{instruction: mma, dtype: int8, macs_per_cycle: 1}"),
    )
    (tmp_path / "mine.yaml").write_text(wide, encoding="utf-8")
    said = [warning.text("").split(": ", 1)[1] for warning in inspect_chip(tmp_path / "mine.yaml")[1]]
    assert said == [
        "engines: no engine of kind simt; it computes everything that is not a product",
        "simt.warp_threads: 2,048 threads in a warp; 8 to 64 are usual",
    ]


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda chip: chip.dma, "chip a100: needs the part dma; has kind gpu with simt"),
        (lambda chip: chip.assumed, "chip a100: needs the part assumed; has kind gpu with simt"),
        (lambda chip: chip.matrix, "chip a100: needs an engine of kind matrix; has simt, tensor"),
        (lambda chip: matrix_cycles(chip, 1, 1, 1, "float16"), "needs an engine of kind matrix"),
        (lambda chip: vector_cycles(chip, 1, "float16"), "needs an engine of kind vector"),
        (lambda chip: dma_cycles(chip, "HBM", "L2", 1), "needs the part dma"),
        (lambda chip: transfer_cycles(chip, "HBM", "L2", 1), "needs a link HBM -> L2; has no links"),
        (
            lambda chip: chip.tensor.macs_per_cycle("wgmma", "float16"),
            "engine tensor: needs a rate for wgmma of float16; has mma of float16, mma of bfloat16, mma of int8",
        ),
    ],
)
def test_asking_a_gpu_for_what_it_has_not_says_what_it_has(ask: object, words: str) -> None:
    assert callable(ask)
    with pytest.raises(ChipError) as caught:
        ask(load_chip("a100"))
    assert words in str(caught.value)


def test_asking_an_array_of_cores_for_its_threads_says_what_it_has() -> None:
    chip = load_chip("stcp920")
    with pytest.raises(ChipError, match="chip stcp920: needs the part simt; has kind cores with links, dma, assumed"):
        _ = chip.simt
    with pytest.raises(ChipError, match="needs an engine of kind tensor; has scalar, vector, matrix"):
        _ = chip.tensor


def test_a_copy_of_a_chip_takes_the_names_of_the_file() -> None:
    chip = load_chip("stcp920")
    dearer = chip.assumed.model_copy(update={"launch_cycles": 7.0})
    assert chip.model_copy(update={"assumed": dearer}).assumed.launch_cycles == 7.0
    assert chip.model_copy(update={"clusters": 2}).cores == 16
    assert chip.model_copy() == chip
    with pytest.raises(KeyError, match="dma_limits"):
        chip.model_copy(update={"dma_limits": chip.dma})


def test_the_text_form_shows_what_a_gpu_has() -> None:
    assert str(load_chip("a100")).splitlines()[3:] == [
        "  memory HBM: 40 GiB per chip, aligned to 16, 1102.8 B/cycle, read by simt, written by simt",
        "  memory L2: 40 MiB per chip, aligned to 16, 5120 B/cycle, read by simt, written by simt",
        "  memory shared: 164 KiB per core, aligned to 16, 128 B/cycle, lost between kernels, read by simt, tensor, "
        "written by simt",
        "  engine simt: simt, 64 lanes, float32 64/cycle, float16 256/cycle",
        "  engine tensor: tensor, mma float16 1024, mma bfloat16 1024, mma int8 2048 MAC/cycle",
        "  simt a core: 2048 threads in warps of 32, 32 blocks, 65536 registers",
        "  simt a block: 1024 threads of 255 registers, 163 KiB of shared, clusters of 1",
        "  simt a launch: 2 us; all cores share L2",
    ]
    assert str(load_chip("a100")).splitlines()[1] == "  gpu, isa sm_80, 1410 MHz, 1 clusters x 108 cores"


OLDER = A100.replace("isa: sm_80", "isa: sm_70")
"""A GPU that nobody generates code for."""
MISSING = "needs a code generator for sm_70; has gemmini-v3, neuralscale-v1, sm_80, sm_90a"


def test_chip_check_says_that_a_gpu_is_not_planned_for(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(OLDER, encoding="utf-8")
    checked = CliRunner().invoke(cli, ["chip", "check", str(tmp_path / "mine.yaml")])
    assert checked.exit_code == 0
    good, note = checked.stdout.splitlines()
    assert good.startswith(f"{tmp_path / 'mine.yaml'}: good; chip a100, isa sm_70, 108 cores, hash ")
    assert f"note: neither plans nor machine code: chip a100: {MISSING}" in note
    assert note.endswith("; --print graph works without one")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["compile", "squeezenet", "--chip", "older.yaml", "-o", "out"],
            MISSING,
        ),
        (
            ["verify", "squeezenet", "--chip", "older.yaml"],
            MISSING,
        ),
        (["ops", "--chip", "older.yaml"], MISSING),
        (
            ["explain", "squeezenet", "--chip", "older.yaml"],
            "needs a code generator for sm_70, which plans for a chip of kind gpu ask for its kernels; has none",
        ),
        (
            ["compile", "squeezenet", "--chip", "older.yaml", "--print", "plan"],
            "needs a code generator for sm_70, which plans for a chip of kind gpu ask for its kernels; has none",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_commands_that_need_a_code_generator_say_so(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "older.yaml").write_text(OLDER, encoding="utf-8")
    result = CliRunner().invoke(cli, arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"dsa-sched: error: chip a100: {said}" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["older.yaml"]
