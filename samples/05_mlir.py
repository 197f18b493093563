"""A function of another compiler, in linalg and tosa: placed on a big and a little core, and given back annotated.

python samples/05_mlir.py | mlir-opt --allow-unregistered-dialect

`samples/functions/two_branches.mlir` is in MLIR's generic form, as `mlir-opt --mlir-print-op-generic` writes it.
"""

from __future__ import annotations

from pathlib import Path

from dsa_sched.placement.mlir.convert import generic_text
from dsa_sched.placement.mlir.passes import PlaceFunction
from dsa_sched.placement.mlir.tensor_functions import foreign_context, parse_foreign_module

SAMPLES = Path(__file__).parent


def main() -> None:
    file = SAMPLES / "functions" / "two_branches.mlir"
    module = parse_foreign_module(file.read_text(), file.name)
    scenario = SAMPLES / "scenarios" / "big_little.yaml"
    PlaceFunction(str(scenario), method="sphinx").apply(foreign_context(), module)
    print(generic_text(module), end="")


if __name__ == "__main__":
    main()
