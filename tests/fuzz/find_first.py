"""How many random models until one is wrong: `python -m tests.fuzz.find_first --seed N` counts from a seed of its own.

    seeds N * 1,000,000 + 0, 1, 2, ...  -->  the first that differs from O0 or cannot be compiled; its smallest part

With `--runs R` also for N + 1, ..., N + R - 1, and the median of all.
`--shrink` shows the smallest part of each model that still fails.
"""

from __future__ import annotations

import argparse
import statistics

import onnx

from hw_models.chip import Chip
from tests.fuzz.levels_agree import WAYS, Way, chip_of, compare, feed_of, load
from tests.fuzz.random_models import model_of
from tests.fuzz.shrink import shrink

__all__ = ["first_wrong", "problem_of", "smallest"]

APART = 1_000_000
"""Between the models of one seed and the next."""


def problem_of(model: onnx.ModelProto, chip: Chip, seed: int, ways: tuple[Way, ...] = WAYS) -> str:
    """What is wrong with the compiler, as this model shows it: a difference from O0, or an error of any kind; else
    nothing. That a program does not fit the chip is nothing."""
    try:
        found = compare(load(model), chip, feed_of(model, seed), seed, ways)
    except Exception as error:  # whatever the compiler lets escape is what is looked for
        return f"{type(error).__name__}: {error}"
    return f"bits: {found.differences[0]}" if found.differences else ""


def first_wrong(start: int, most: int, ways: tuple[Way, ...] = WAYS, kind: str = "") -> tuple[int, str] | None:
    """How many models were tried up to the first that shows a problem, of a kind if one is given, and the problem."""
    for count in range(most):
        seed = start + count
        problem = problem_of(model_of(seed), chip_of(seed, model_of(seed)), seed, ways)
        if problem and problem.startswith(kind):
            return count + 1, problem
    return None


def smallest(seed: int, problem: str, ways: tuple[Way, ...] = WAYS) -> onnx.ModelProto:
    """What is left of the model of a seed that shows a problem of this kind, where it shows it."""
    chip, kind = chip_of(seed, model_of(seed)), problem.split(":")[0]
    failing = tuple(way for way in ways if problem.startswith(f"bits: {way}:")) or ways
    return shrink(model_of(seed), lambda model: problem_of(model, chip, seed, failing).split(":")[0] == kind)


def _told(model: onnx.ModelProto) -> str:
    """The model as text without the constants' elements."""
    shapes = {item.name: list(item.dims) for item in model.graph.initializer}
    inputs = {i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in model.graph.input}
    nodes = [str(onnx.printer.to_text(node)).strip() for node in model.graph.node]
    small = {t.name: onnx.numpy_helper.to_array(t).tolist() for t in model.graph.initializer if len(t.dims) == 1}
    few = {name: values for name, values in small.items() if len(values) <= 8}
    return "\n".join(
        f"    {line}"
        for line in (f"opset {model.opset_import[0].version}", *nodes, f"inputs {inputs}", f"constants {shapes | few}")
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--most", type=int, default=3000, help="models a run")
    parser.add_argument("--kind", default="", help="how the problem begins: bits, or the name of an error")
    parser.add_argument("--shrink", action="store_true", help="show the smallest part that fails")
    parser.add_argument("--level", choices=sorted({way.level for way in WAYS}), help="one level alone, not scheduled")
    told = parser.parse_args()
    ways = (Way(told.level, schedule=False),) if told.level else WAYS
    counts = []
    for run in range(told.seed, told.seed + told.runs):
        found = first_wrong(run * APART, told.most, ways, told.kind)
        print(
            f"seed {run}: {'none of ' + str(told.most) if found is None else f'model {found[0]}: {found[1]}'}",
            flush=True,
        )
        counts.append(told.most if found is None else found[0])
        if found is not None and told.shrink:
            seed = run * APART + found[0] - 1
            print(_told(smallest(seed, found[1], ways)), flush=True)
    print(f"median {statistics.median(counts):g} of {sorted(counts)}")


if __name__ == "__main__":
    main()
