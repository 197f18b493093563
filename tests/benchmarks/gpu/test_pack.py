"""Packs: equal bytes, weights whose bits are fixed, weights as kernels read them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from benchmarks.gpu.onnx_layers import OnnxLayers
from benchmarks.gpu.pack import Wanted, build
from benchmarks.gpu.packed_weights import Movement, find_movements, from_bytes, in_a_row, moved, to_bytes
from benchmarks.gpu.predict import predicted
from benchmarks.gpu.store import PackWriter, read_pack
from benchmarks.gpu.study import SMALL_SUBJECTS
from benchmarks.gpu.synthetic import described, drawn, drawn_input, is_drawn
from benchmarks.gpu.unfolded import unfolded
from hw_models.errors import FileError

KEY = "0123456789abcdef" * 4


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> Wanted:
    """A network of one convolution whose filters are padded."""
    net = OnnxLayers()
    net.conv("x", 3, 16, 3, "y")
    path = tmp_path_factory.mktemp("model") / "padded.onnx"
    onnx.save(net.model("padded", ("x", ["n", 3, 6, 6]), ("y", ["n", 16, 6, 6])), path)
    return Wanted((str(path),), (2,), ("h200",), ptx=True, small=True)


@pytest.fixture(scope="module")
def padded(wanted: Wanted, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pack")
    build(folder, wanted, lambda _said: None)
    return folder


def check_equal(pack: Path, wanted: Wanted, folder: Path, processes: int = 1) -> None:
    """Is a pack that is built in the folder this one?"""
    _, size = build(folder, wanted, lambda _said: None, processes)
    found = [
        {path.relative_to(each).as_posix(): path.read_bytes() for path in each.rglob("*") if path.is_file()}
        for each in (pack, folder)
    ]
    assert found[0] == found[1]
    assert size == sum(map(len, found[0].values()))


@pytest.mark.slow
def test_equal_checkouts_make_equal_packs(padded: Path, wanted: Wanted, tmp_path: Path) -> None:
    check_equal(padded, wanted, tmp_path / "again")


@pytest.mark.parametrize("pack", [pytest.param("study", marks=pytest.mark.nightly)], indirect=True)
def test_equal_checkouts_make_equal_packs_of_the_study(
    branching_file: Path, chip_by_floors: str, pack: Path, tmp_path: Path
) -> None:
    of_study = Wanted((str(branching_file),), (2,), (chip_by_floors,), ptx=True, small=True, subjects=SMALL_SUBJECTS)
    check_equal(pack, of_study, tmp_path / "again", processes=2)


def test_no_weights_travel(padded: Path) -> None:
    """Padded filters of the first convolution are a movement; recipes are seeds."""
    check_no_weights(padded)


@pytest.mark.nightly
def test_no_weights_of_several_layers_travel(pack: Path) -> None:
    check_no_weights(pack)


def check_no_weights(pack: Path) -> None:
    assert read_pack(pack).programs
    for program in read_pack(pack).programs:
        with unfolded(read_pack(pack), program) as made:
            large = {key: recipe for key, recipe in made.recipes.items() if np.prod(recipe["shape"]) > 64}
            assert large
            assert all(map(is_drawn, large.values()))


def test_a_network_that_does_not_compile_is_named(tmp_path: Path) -> None:
    said: list[str] = []
    manifest, _ = build(tmp_path / "pack", Wanted((str(tmp_path / "none.onnx"),), (1,), ("h200",)), said.append)
    (left,) = manifest["left_out"]
    assert left["network"] == str(tmp_path / "none.onnx")
    assert "left out: " + left["reason"] in said


def philox(counter: int, key: tuple[int, int]) -> list[int]:
    """Philox4x64-10 as published (Salmon et al., 2011): four words of a counter."""
    whole = 2**64
    x, (k0, k1) = [counter % whole, counter >> 64, 0, 0], key
    for _ in range(10):
        a, b = 0xD2E7470EE14C6C93 * x[0], 0xCA5A826395121157 * x[2]
        x = [(b >> 64) ^ x[1] ^ k0, b % whole, (a >> 64) ^ x[3] ^ k1, a % whole]
        k0, k1 = (k0 + 0x9E3779B97F4A7C15) % whole, (k1 + 0xBB67AE8584CAA73B) % whole
    return x


def test_the_bits_of_weights_are_fixed() -> None:
    """By the definition of Philox, and so by no version of NumPy."""
    seed, salt = 7, 0x6473612D73636865
    recipe = {
        "dtype": "float16",
        "shape": [16],
        "seed": seed,
        "mean": 0.25,
        "spread": 2.0,
        "least": -2.0,
        "largest": 9.0,
    }
    words = [word for counter in (1, 2) for word in philox(counter, (seed, salt))]
    halves = [half for word in words for half in (word % 2**32, word >> 32)]
    root = 3.0**0.5
    numbers = [0.25 + 2.0 * ((half + 0.5) * (2 * root / 2**32) - root) for half in halves]
    wanted = np.array([min(max(number, -2.0), 9.0) for number in numbers]).astype(np.float16)
    assert drawn(recipe).tolist() == wanted.tolist()
    assert drawn_input(seed, (4, 4), "float16").shape == (4, 4)


def test_weights_keep_mean_spread_and_range() -> None:
    given = np.random.default_rng(0).normal(0.5, 0.25, (64, 100)).clip(0, None).astype(np.float32)
    recipe = described(KEY, given)
    found = drawn(recipe)
    assert found.dtype == given.dtype
    assert found.shape == given.shape
    assert abs(found.mean() - given.mean()) < 0.02
    assert abs(found.std() - given.std()) < 0.02
    assert given.min() <= found.min() <= found.max() <= given.max()
    assert not np.array_equal(found, given)


@pytest.mark.parametrize(
    "kept",
    [np.arange(300), np.array([1.5, -2.0], np.float32), np.where(np.arange(400) % 3, 0.0, -np.inf).astype(np.float16)],
    ids=["integers", "few", "mask"],
)
def test_what_is_no_weight_is_kept(kept: np.ndarray) -> None:
    found = drawn(described(KEY, kept))
    assert found.dtype == kept.dtype
    assert np.array_equal(found, kept)


def test_movements_of_weights_are_found() -> None:
    random = np.random.default_rng(0)
    constants = {
        "a": random.standard_normal((40, 9, 3)).astype(np.float16),
        "b": random.standard_normal(3000).astype(np.float16),
    }

    def packings(given: dict[str, np.ndarray]) -> list[bytes]:
        padded = np.pad(given["a"], ((0, 0), (0, 0), (0, 5)))
        wide = given["b"][::-1].astype(np.float32)
        return [padded.tobytes(), wide.tobytes(), (2 * wide).tobytes(), b"table"]

    found = find_movements(packings, constants, ["a", "b"])  # type: ignore[arg-type]
    padded, wide, doubled, table = found
    assert isinstance(padded, Movement)
    assert isinstance(wide, Movement)
    assert (padded.dtype, wide.dtype) == ("float16", "float32")
    assert doubled == packings(constants)[2]
    assert table == b"table"
    other = {key: random.standard_normal(value.shape).astype(np.float16) for key, value in constants.items()}
    row = in_a_row(other.values())
    again = Movement(padded.dtype, from_bytes(to_bytes(padded.places)))
    assert [moved(again, row), moved(wide, row)] == packings(other)[:2]


def test_a_folder_of_something_else_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("data")
    with pytest.raises(FileError, match="needs an empty folder or an older pack; has other files"):
        PackWriter.begun(tmp_path)
    assert (tmp_path / "precious").read_text() == "data"


def test_a_pack_that_was_stopped_is_built_anew(tmp_path: Path) -> None:
    PackWriter.begun(tmp_path).add(b"of the stopped one")
    again = PackWriter.begun(tmp_path)
    name = again.add(b"of this one")
    again.finish({})
    assert [path.name for path in (tmp_path / "objects").iterdir()] == [name]


def test_floors_are_predicted_for_each_chip(branching_file: Path, chip_by_floors: str) -> None:
    rows = list(predicted([str(branching_file)], [1, 4], [chip_by_floors, "a100"], lambda _said: None))
    found = {(row["chip"], row["batch"], row["level"]): row for row in rows}
    assert set(found) == {
        (chip, batch, level) for chip in ("h200", "a100") for batch in (1, 4) for level in ("O0", "O3")
    }
    for (chip, batch, level), row in found.items():
        floors = [float(kernel.split(" ms, ")[0]) for kernel in row["kernels"].values()]
        assert row["floor_ms"] == pytest.approx(row["launch_ms"] + sum(floors), rel=1e-3)
        assert min(floors) > 0
        assert row["floor_ms"] >= found[chip, 1, level]["floor_ms"]
        assert row["floor_ms"] <= found[chip, batch, "O0"]["floor_ms"]
