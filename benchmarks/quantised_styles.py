"""Networks that onnxruntime quantised, compiled and verified: `python benchmarks/quantised_styles.py [--check]`.

Twelve networks of the zoo are prepared and quantised by onnxruntime (`quant_pre_process`, `quantize_static`, four drawn
inputs) in four styles: symmetric int8 and uint8 with zero points, both per channel, uint8 weights per tensor, and
QLinear operators. Each is verified as `dsa-sched verify` does, at O0 and at auto with `--effort fast`.

Every row goes to benchmarks/results/quantised_styles.json as soon as it is made, and a run goes on where the last one
ended: rows that are there are kept, unless `--networks` or `--styles` name them. No row is begun after `--minutes`.
With `--check` nothing is written: as many rows as time allows are made again, and the exit code is 1 where one that
passed does not, or where fewer than 44 of 48 passed at both levels.

Keys of the JSON object: `rows`, one per network, style and level:

    network, style, level
    verdict             passed, failed or inconclusive; refused where it does not compile; broken for any other error
    reason              of a verdict other than passed
    layers              that make integers and stand alone
    values, differing   integers of these layers, each by itself, over all inputs, and how many are not those of exact
                        arithmetic
    worst_share         of differing values, in the worst of these layers
    layers_above        how many of these layers have more than 1.5 percent of differing values
    most_steps          that a value is off
    seconds             wall time of compiling and verifying
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the packages that are not installed

import numpy as np
import onnx
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

import dsa_sched
from benchmarks.output import at_least_one, table
from dsa_sched.frontend.load import read_source
from dsa_sched.io.atomic_write import write_whole
from dsa_sched.quantisation.inputs import SEEDED, calibration_inputs
from hw_models.errors import UserError

Row = dict[str, Any]
Case = tuple[str, str, str]

_SYMMETRIC = {"ActivationSymmetric": True, "WeightSymmetric": True}
STYLES: Mapping[str, Mapping[str, Any]] = {
    "symmetric": {"activation_type": QuantType.QInt8, "per_channel": True, "extra_options": _SYMMETRIC},
    "uint8": {"activation_type": QuantType.QUInt8, "per_channel": True},
    "uint8 weights": {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QUInt8},
    "operators": {"activation_type": QuantType.QInt8, "per_channel": True, "quant_format": QuantFormat.QOperator},
}

CONVOLUTIONAL = (
    "mobilenet_v2-mini", "efficientnet_b0-mini", "inception_v3-mini", "resnet18_tailor-mini", "convnext_t-mini",
    "siamese-mini",
)  # fmt: skip
ENCODERS = ("bert_base-mini", "bert_large-mini", "vit_b16-mini", "swin_t-mini", "whisper_encoder-mini",
            "conformer_m-mini")  # fmt: skip
NETWORKS = (*CONVOLUTIONAL, *ENCODERS)
LEVELS = ("O0", "auto")
EFFORT = "fast"
"""Effort of the search at auto."""

WANTED = 44
"""Cases that are to pass at both levels, of all networks in all styles."""

INPUTS = 4
"""Drawn inputs of the calibration."""
SEED = 1
"""Seed of these; `verify` draws with 0, so it judges inputs that the calibration has not seen."""

SHARE = 0.015
"""Largest share of values of a layer that is meant to differ from exact arithmetic."""

RESULTS = Path(__file__).parent / "results"
JSON = RESULTS / "quantised_styles.json"
MINUTES = 60


class _Drawn(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, model: onnx.ModelProto) -> None:
        self.left = iter(calibration_inputs(model, SEEDED, INPUTS, SEED))

    def get_next(self) -> Mapping[str, np.ndarray[Any, Any]] | None:
        return next(self.left, None)


def quantised(network: str, style: str, folder: Path) -> Path:
    """The file that onnxruntime's quantiser writes of a network of the zoo."""
    plain, prepared, path = (folder / f"{name}.onnx" for name in ("plain", "prepared", "quantised"))
    model = read_source(network, {}, None, {}, known="standard").model
    onnx.save(model, plain)
    quant_pre_process(plain, prepared, skip_symbolic_shape=True)
    options = {"quant_format": QuantFormat.QDQ, "weight_type": QuantType.QInt8, **STYLES[style]}
    quantize_static(prepared, path, _Drawn(model), **options)
    return path


def measured(case: Case, folder: Path) -> Row:
    """One row."""
    network, style, level = case
    row: Row = {"network": network, "style": style, "level": level}
    began = time.perf_counter()
    try:
        path = quantised(network, style, folder)
        began = time.perf_counter()
        row |= _judged(path, level)
    except UserError as error:
        row |= {"verdict": "refused", "reason": _line(error)}
    except Exception as error:  # a defect in one network, which must not hide what the others do
        row |= {"verdict": "broken", "reason": f"{type(error).__name__}: {_line(error)}"}
    return row | {"seconds": round(time.perf_counter() - began, 1)}


def _judged(path: Path, level: str) -> Row:
    effort: dict[str, Any] = {"effort": EFFORT} if level == "auto" else {}
    report = dsa_sched.verify(path, "stcp920", level=level, **effort).report
    steps = [layer.steps for layer in report.layers if layer.steps is not None and not layer.steps.linked]
    return {
        "verdict": report.verdict,
        "reason": "" if report.passed else report.reason,
        "layers": len(steps),
        "values": sum(each.values for each in steps),
        "differing": round(sum(each.values * each.share for each in steps)),
        "worst_share": max((each.share for each in steps), default=0.0),
        "layers_above": sum(each.share > SHARE for each in steps),
        "most_steps": max((each.most for each in steps), default=0),
    }


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:400]


def rows_of(cases: Iterable[Case], minutes: float) -> Iterator[Row]:
    """Rows of cases, as many as are begun within the time."""
    end = time.monotonic() + 60 * minutes
    for case in cases:
        if time.monotonic() > end:
            print(f"{minutes:g} minutes are over before {' '.join(case)}", file=sys.stderr)
            return
        with tempfile.TemporaryDirectory() as folder:
            row = measured(case, Path(folder))
        print(f"{' '.join(case)}: {row['verdict']}, {row['seconds']:.0f} s", file=sys.stderr, flush=True)
        yield row


def case_of(row: Row) -> Case:
    """The key of a row."""
    return row["network"], row["style"], row["level"]


def merged(old: Sequence[Row], new: Sequence[Row]) -> list[Row]:
    """New rows in place of old ones, in the order of the table."""
    rows = {case_of(row): row for row in (*old, *new)}
    every = [(network, style, level) for level in LEVELS for network, style in product(NETWORKS, STYLES)]
    return [rows[case] for case in every if case in rows]


def passed_at_all_levels(rows: Sequence[Row]) -> int:
    """How many networks in a style passed at every level."""
    passed = {case_of(row) for row in rows if row["verdict"] == "passed"}
    return sum(all((*each, level) in passed for level in LEVELS) for each in product(NETWORKS, STYLES))


def page(rows: Sequence[Row]) -> str:
    """The table of verdicts, what did not pass and why, and how exact layers are, per style."""
    verdicts = {case_of(row): row["verdict"] for row in rows}
    cells = [
        [network, *(", ".join(verdicts.get((network, style, level), "-") for level in LEVELS) for style in STYLES)]
        for network in NETWORKS
    ]
    said = [
        f"* {row['network']}, {row['style']}, {row['level']}: {row['verdict']}: {row['reason']}"
        for row in rows
        if row["verdict"] != "passed"
    ]
    count = f"{passed_at_all_levels(rows)} of {len(NETWORKS) * len(STYLES)} passed at {' and '.join(LEVELS)}"
    exact = [_exactness(style, [row for row in rows if row["style"] == style and row["level"] == "O0"])
             for style in STYLES]  # fmt: skip
    heads = ("style", "layers", "of all values differ", "worst layer", f"layers above {SHARE:.1%}", "steps at most")
    parts = [table(("network", *STYLES), cells), f"{count}, auto with `--effort {EFFORT}`.", "\n".join(said)]
    return "\n\n".join([*filter(None, parts), "Each layer by itself against exact arithmetic:", table(heads, exact)])


def _exactness(style: str, rows: Sequence[Row]) -> list[str]:
    known = [row for row in rows if row.get("values")]
    values, layers = (sum(row[key] for row in known) for key in ("values", "layers"))
    return [
        style,
        str(layers),
        f"{sum(row['differing'] for row in known) / max(values, 1):.2%}",
        f"{max((row['worst_share'] for row in known), default=0.0):.2%}",
        str(sum(row["layers_above"] for row in known)),
        str(max((row["most_steps"] for row in known), default=0)),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--networks", nargs="+", metavar="NAME", choices=NETWORKS, help="make rows of these again")
    parser.add_argument("--styles", nargs="+", metavar="STYLE", choices=tuple(STYLES), help="make rows of these again")
    parser.add_argument("--levels", nargs="+", metavar="LEVEL", choices=LEVELS, default=LEVELS, help="O0, auto")
    parser.add_argument("--minutes", type=at_least_one, default=MINUTES, help="begin no row after this time")
    parser.add_argument("--check", action="store_true", help="exit with 1 where what passed does not; write nothing")
    options = parser.parse_args(arguments)
    kept: list[Row] = json.loads(JSON.read_text(encoding="utf-8"))["rows"] if JSON.exists() else []
    named = options.networks is not None or options.styles is not None or options.check
    known = frozenset[Case]() if named else {case_of(row) for row in kept}
    wanted = product(options.levels, options.networks or NETWORKS, options.styles or STYLES)
    cases = [(network, style, level) for level, network, style in wanted if (network, style, level) not in known]
    rows: list[Row] = []
    for row in rows_of(cases, options.minutes):
        rows.append(row)
        if not options.check:
            _write(merged(kept, rows))
    made = merged(kept, rows)
    print(page(made))
    if not options.check:
        return 0
    before = {case_of(row): row["verdict"] for row in kept}
    worse = [row for row in rows if row["verdict"] != "passed" and before.get(case_of(row), "passed") == "passed"]
    return int(bool(worse) or passed_at_all_levels(made) < WANTED)


def _write(rows: Sequence[Row]) -> None:
    data = (json.dumps({"rows": rows}, indent=1) + "\n").encode()
    text = (
        f"# Networks of onnxruntime's quantiser\n\nMade by `python benchmarks/quantised_styles.py`.\n\n{page(rows)}\n"
    )
    write_whole(JSON, lambda file: file.write(data))
    write_whole(RESULTS / "quantised_styles.md", lambda file: file.write(text.encode()))


if __name__ == "__main__":
    sys.exit(main())
