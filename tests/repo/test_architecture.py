"""Pages and docstrings name what exists, and the pictures of docs/architecture.md are those of the code."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.repo.parsed import parsed
from tests.repo.test_layers import folder_imports

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PAGES = (
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if "generated" not in page.parts),
)
HOMES = ("hw_models", "partitioner", "isched", "codegen", "dsa_sched", "tests", "benchmarks", "samples", "docs")
FRONTEND, PLACEMENT = "dsa_sched/frontend", "dsa_sched/placement"
PICTURES = ("partitioner", "isched", "codegen", "codegen/neuralscale", "dsa_sched", FRONTEND, PLACEMENT)
ORDERED = ("partitioner", "isched", "dsa_sched", FRONTEND, PLACEMENT)
"""Those whose folders stand in the order of their imports."""


FOREIGN = frozenset({"expect_tx", "complete_tx", "OpType_index", "GPT2LMHeadModel", "BertModel"})
"""Names of PTX, ONNX and transformers that docstrings have in code font."""
GROUPS = ("dsa_sched.operators", "dsa_sched.targets")
"""Entry points, which look like modules."""


def named_paths(page: str) -> set[str]:
    """Python files, and files and folders of the packages, that a page names in code font."""
    words = set(re.findall(r"`([\w./-]+)`", page))
    in_homes = {word for word in words if word.split("/")[0] in HOMES and re.fullmatch(r"[\w-]+(/[\w.-]+)*/?", word)}
    return {word for word in words if word.endswith(".py")} | {word for word in in_homes if "/" in word}


def named_modules(page: str) -> set[str]:
    """Dotted names of the packages, as `isched.timing.cycle_model` or something in it."""
    return set(re.findall(rf"`((?:{'|'.join(HOMES[:5])})(?:\.\w+)+)`", page))


def picture(package: str) -> list[str]:
    """The folders that the picture of a package names, in its order."""
    (lines,) = re.findall(rf"^\*\*{package}\*\*: .*\n(?:.+\n)*\n((?:    .*\n)+)", PAGE, re.MULTILINE)
    return re.findall(r"(?:^    |,? {1,8})(\w+)/(?=[ ,]|$)", lines, re.MULTILINE)


def folders(package: str) -> set[str]:
    return {file.parent.name for file in (ROOT / package).glob("*/__init__.py")}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_and_folder_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert [path for path in sorted(named_paths(text)) if not (ROOT / path).exists()] == []
    for name in named_modules(text):
        path = ROOT / name.replace(".", "/")
        assert any(place.is_dir() or place.with_suffix(".py").exists() for place in (path, path.parent)), name


def test_a_path_that_is_none_is_found() -> None:
    named = named_paths(
        "`evidence.py` of `isched/timing/`, `hw_models/chips/a.yaml`, not `mine.out` nor `a/b` nor `tests`"
    )
    assert named == {"evidence.py", "isched/timing/", "hw_models/chips/a.yaml"}
    assert len(named_paths(PAGE)) >= 70


@cache
def docstrings() -> tuple[tuple[Path, int, str], ...]:
    """Module, line and text of every docstring in the packages, those under constants and fields too."""
    return tuple(
        (path, node.lineno, node.value.value)
        for home in HOMES[:5]
        for path in (ROOT / home).rglob("*.py")
        for node in ast.walk(parsed(path.read_text("utf-8")))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    )


@cache
def known_names() -> frozenset[str]:
    """Every word of the code outside of docstrings and comments, and what CUDA and YAML files hold; names of others."""
    known: set[str] = set()
    written: dict[Path, str] = {}
    for path, _, text in docstrings():
        source = written.setdefault(path, path.read_text("utf-8"))
        written[path] = source.replace(text, "", 1)
    for path in (path for home in HOMES[:5] for path in (ROOT / home).rglob("*")):
        if path.suffix in (".py", ".yaml", ".cu", ".cuh", ".h", ".c"):
            known |= {path.stem, path.parent.name}
            known.update(re.findall(r"\w+", re.sub(r"#.*", "", written.get(path) or path.read_text("utf-8"))))
    return frozenset(known) | FOREIGN


def missing_files(path: Path, text: str) -> list[str]:
    """Python files that a docstring of `path` names, by the path from the root or from a folder above the module."""
    named = re.findall(r"`([\w./-]+\.py)`", text)
    folders = [folder for folder in path.parents if folder.is_relative_to(ROOT)] if named else []
    return [name for name in named if not any((folder / name).exists() for folder in folders)]


def missing_names(text: str) -> list[str]:
    """Names with an underscore, names of classes, and dotted names of the packages that the code does not have."""
    dotted = rf"(?:{'|'.join(HOMES[:5])})(?:\.\w+)+"
    names = rf"`({dotted}|[a-z]\w*_\w+(?:\.\w+)*|[A-Z]\w*[a-z]\w*(?:\.\w+)*)`"
    found = (name for name in re.findall(names, text) if name not in GROUPS)
    return [name for name in found if not {*name.split(".")} <= known_names()]


@pytest.mark.commit
def test_docstrings_name_what_exists() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path, line, text in docstrings()
        for name in (*missing_files(path, text), *missing_names(text))
    ]
    assert wrong == []


def test_pages_that_the_code_names_exist() -> None:
    """In docstrings and in messages."""
    files = [path for home in HOMES[:8] for path in (ROOT / home).rglob("*.py")]
    named = {
        (path, page) for path in files for page in re.findall(r"\b(?:docs|benchmarks)/[\w./-]+\.md\b", path.read_text())
    }
    assert len(named) >= 20
    assert [(path, page) for path, page in sorted(named) if not (ROOT / page).exists()] == []


def test_a_name_that_is_stale_is_found() -> None:
    text = (
        "`plan_with` of `levels.py`, `Planner`, `NoPlanner`, `registry.py`, `isched.timing.cycle_model.no_such_thing`"
    )
    assert missing_files(ROOT / "partitioner/planners/o0.py", f"{text}, `breed.py`") == ["breed.py"]
    assert missing_names(text) == ["plan_with", "NoPlanner", "isched.timing.cycle_model.no_such_thing"]


@pytest.mark.parametrize("package", PICTURES)
def test_the_picture_of_a_package_has_all_its_folders(package: str) -> None:
    assert len(picture(package)) == len(set(picture(package)))
    assert set(picture(package)) == folders(package)


@pytest.mark.parametrize("package", ORDERED)
def test_folders_stand_in_the_order_of_their_imports(package: str) -> None:
    names = picture(package)
    dotted = package.replace("/", ".")
    for folder, imported in folder_imports().items():
        if folder.startswith(f"{dotted}."):
            own = folder.removeprefix(f"{dotted}.").split(".")[0]
            inside = {
                name.removeprefix(f"{dotted}.").split(".")[0] for name in imported if name.startswith(f"{dotted}.")
            }
            later = names[names.index(own) + 1 :]
            assert not inside & {*later}, f"{folder} imports {sorted(inside & {*later})}, which stand after it"
