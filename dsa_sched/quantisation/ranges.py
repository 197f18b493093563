"""Calibration: the range of numbers that each quantised value has over the inputs, by onnxruntime's calibrators.

    prepared model, names of values, input sets  -->  {value: (lowest, highest)}

    minmax       what occurs. Minima and maxima are computed inside the network, so that no activations are kept.
    percentile   what all but 0.01 percent of the magnitudes do not exceed, by a histogram of 2,048 bins
    entropy      the range whose 255 steps lose least information (Kullback-Leibler), by a histogram of 1,024 bins

Histograms grow with each input set and hold its activations until the next one. onnxruntime's own defaults for entropy
(128 bins for 128 steps) leave one range to choose from, the whole one, so that they are the same as minmax.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, Protocol, get_args

import numpy as np
import onnx

from dsa_sched.quantisation.choice import IntegerChoice
from dsa_sched.quantisation.sessions import InputSet
from hw_models.errors import ModelError

Method = Literal["minmax", "entropy", "percentile"]
METHODS: tuple[str, ...] = get_args(Method)

PERCENTILE = 99.99
"""Percent of the magnitudes that are inside of the range."""

PERCENTILE_BINS = 2048
ENTROPY_BINS, ENTROPY_STEPS = 1024, 256

FINITE = "finite numbers for all calibration inputs"
"""What every value must have."""

ValueRange = tuple[float, float]
"""Lowest and highest number of a value."""


class InputSets(Sized, Iterable[InputSet], Protocol):
    """Input sets that can be counted and gone through more than once."""


class _Once:
    """One input set, as calibrators ask for it."""

    def __init__(self, inputs: InputSet) -> None:
        self.left: InputSet | None = inputs

    def get_next(self) -> dict[str, Any] | None:
        inputs, self.left = self.left, None
        return dict(inputs) if inputs is not None else None


def value_ranges(
    model: onnx.ModelProto, choice: IntegerChoice, inputs: InputSets, method: str, say: Callable[[str], None]
) -> dict[str, ValueRange]:
    """The range of each value of the choice. Raises ModelError where onnxruntime refuses the network or the inputs, and
    for numbers that are not finite."""
    if not choice.values:
        return {}
    with TemporaryDirectory(prefix="dsa-sched-") as folder:
        try:
            calibrator = _calibrator(model, choice.values, method, Path(folder))
            for number, each in enumerate(inputs, 1):
                say(f"calibrating, input {number} of {len(inputs)}")
                with _quiet():
                    calibrator.collect_data(_Once(each))
            ranges = _entropy_ranges(calibrator, say) if method == "entropy" else _ranges(calibrator)
        except (ModelError, KeyboardInterrupt, MemoryError):
            raise
        except Exception as error:  # onnxruntime has a separate class for each reason
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            needs = FINITE if "not finite" in reason else "a network and inputs that onnxruntime can calibrate"
            raise ModelError(model.graph.name or "model", needs=needs, has=reason) from error
    for name, ends in ranges.items():
        if not np.isfinite(ends).all():
            has = f"some from {ends[0]:g} to {ends[1]:g}"
            raise ModelError(f"value {name}", needs=FINITE, has=has)
    return ranges


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what calibrators print, and without numpy's warnings about numbers that are refused afterwards."""
    with redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _ranges(calibrator: Any) -> dict[str, ValueRange]:
    with _quiet():
        found = calibrator.compute_data()
    return {name: _ends(*found[name].range_value) for name in found}


def _entropy_ranges(calibrator: Any, say: Callable[[str], None]) -> dict[str, ValueRange]:
    """As `compute_data`, one value after the other, because each takes a third of a second."""
    histograms, found = calibrator.collector.histogram_dict, {}
    for number, (name, histogram) in enumerate(histograms.items(), 1):
        say(f"choosing ranges, value {number} of {len(histograms)}")
        low, high = histogram[2], histogram[3]
        if np.isfinite(low) and np.isfinite(high):
            low, high = calibrator.collector.get_entropy_threshold(histogram, ENTROPY_STEPS)
        found[name] = _ends(low, high)
    return found


def _ends(low: Any, high: Any) -> ValueRange:
    """The ends as numbers; calibrators give arrays of one element."""
    return float(np.asarray(low).reshape(-1)[0]), float(np.asarray(high).reshape(-1)[0])


def tied_ranges(ranges: Mapping[str, ValueRange], choice: IntegerChoice) -> dict[str, ValueRange]:
    """The ranges of the values of a choice, with one range for values that get the same scale."""
    found = {name: ranges[name] for name in choice.values}
    for names in choice.tied:
        lows, highs = zip(*(found[name] for name in names), strict=True)
        found |= dict.fromkeys(names, (min(lows), max(highs)))
    return found


def _calibrator(model: onnx.ModelProto, values: tuple[str, ...], method: str, folder: Path) -> Any:
    """onnxruntime's calibrator of these values, with a session."""
    from onnxruntime.quantization import calibrate

    path, augmented = folder / "network.onnx", str(folder / "augmented.onnx")
    path.write_bytes(model.SerializeToString())
    match method:
        case "percentile":
            found = calibrate.PercentileCalibrater(
                path, None, augmented, symmetric=True, num_bins=PERCENTILE_BINS, percentile=PERCENTILE
            )
        case "entropy":
            found = calibrate.EntropyCalibrater(
                path, None, augmented, num_bins=ENTROPY_BINS, num_quantized_bins=ENTROPY_STEPS
            )
        case _:
            found = calibrate.MinMaxCalibrater(path, None, augmented)
    items = {item.name: item for item in (*model.graph.input, *model.graph.value_info, *model.graph.output)}
    # By itself it takes all values that operators of given types read or make.
    found.select_tensors_to_calibrate = lambda _model: (list(values), items)
    found.augment_graph()
    found.create_inference_session()
    return found
