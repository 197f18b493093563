"""The runners' files: all of them are shipped, and they depend on nothing of this project."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

from codegen.cutlass.emission import binary_list
from codegen.cutlass.runner import FILES, runner, runner_files

FOLDER = Path(runner.__file__).parent


def test_every_file_of_the_folder_is_shipped_but_those_of_this_project() -> None:
    there = {path.name for path in FOLDER.iterdir() if path.is_file()}
    assert there - set(FILES) == {"__init__.py", "executor_driver.py"}
    assert list(runner_files()) == sorted(FILES)
    assert runner_files()["runner.c"] == (FOLDER / "runner.c").read_bytes()


def test_the_package_has_them() -> None:
    tree = ast.parse((FOLDER.parents[2] / "setup.py").read_text())
    (data,) = (word.value for word in ast.walk(tree) if isinstance(word, ast.keyword) and word.arg == "package_data")
    patterns = ast.literal_eval(data)["codegen.cutlass.runner"]
    packed = {path.name for pattern in patterns for path in FOLDER.glob(pattern)}
    assert packed | {"runner.py"} == set(FILES)


def test_the_runner_imports_only_numpy_and_what_python_has() -> None:
    names = set()
    for node in ast.walk(ast.parse((FOLDER / "runner.py").read_text())):
        match node:
            case ast.Import():
                names |= {alias.name.split(".")[0] for alias in node.names}
            case ast.ImportFrom():
                assert node.level == 0
                names.add(str(node.module).split(".")[0])
    assert names - set(sys.stdlib_module_names) == {"numpy"}


def test_the_runner_in_c_reads_what_is_written() -> None:
    header, reader = (runner_files()[name].decode() for name in ("launch_list.h", "launch_list.c"))
    assert f'#define DSA_MAGIC "{binary_list.MAGIC.decode()[:-1]}\\n"' in header
    assert f"DSA_VERSION = {binary_list.VERSION}, DSA_MAX_RANK = {runner.MAX_RANK}," in header
    assert tuple(re.findall(r'\{"(\w+)", \d\}', reader)) == runner.DTYPES
