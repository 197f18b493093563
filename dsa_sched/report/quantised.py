"""A quantised network for a reader and as JSON: the error of each layer, of the outputs, and what a search tried.

The keys of the JSON form are documented in docs/reference/json.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from math import isfinite
from pathlib import Path

from rich.console import Console

from dsa_sched.io.atomic_write import write_whole
from dsa_sched.quantisation.errors import LayerError
from dsa_sched.quantisation.quantise import QuantizedNetwork
from dsa_sched.quantisation.search import FloatSearch
from dsa_sched.report.listing import output_console, print_listing

FORMAT = "dsa-sched-quantize/1"

HEADINGS = ("layer", "operator", "as", "SNR dB", "relative L2", "saturated", "scale")


def print_quantised(network: QuantizedNetwork, console: Console | None = None) -> None:
    """Print a row per layer, a line per output, and the search."""
    console = console or output_console()
    for line in (_title(network), ""):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    print_listing(HEADINGS, map(_row, network.layers), right=(3, 4, 5, 6), console=console)
    console.print()
    for line in (*_ends(network), *(_search(network.search) if network.search else ())):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def quantised_json(network: QuantizedNetwork) -> str:
    """The report as JSON text. A number that is not finite is the string inf or -inf."""
    whole = {
        "format": FORMAT,
        "model": network.source,
        "method": network.method,
        "weights_only": network.weights_only,
        "inputs": network.inputs,
        "relative_l2": network.relative_l2,
        "layers": [asdict(layer) for layer in network.layers],
        "outputs": [asdict(output) for output in network.outputs],
        "float_layers": list(network.float_layers),
        "search": asdict(network.search) | {"curve": [asdict(step) for step in network.search.curve]}
        if network.search
        else None,
    }
    return json.dumps(_finite(whole), indent=1, allow_nan=False) + "\n"


def write_quantised(network: QuantizedNetwork, path: Path) -> None:
    """Write the JSON form, whole or not at all. Raises UserError."""
    text = quantised_json(network).encode()
    write_whole(path, lambda stream: stream.write(text))


def _title(network: QuantizedNetwork) -> str:
    how = "weights only" if network.weights_only else f"calibrated by {network.method}"
    integers = len(network.layers) - len(network.float_layers)
    return f"{network.source}: {integers} of {len(network.layers)} layers in int8, {how}, {network.inputs} inputs"


def _row(layer: LayerError) -> tuple[str, ...]:
    return (
        layer.name,
        layer.operator,
        "float" if layer.in_float else "int8",
        f"{layer.snr_db:.1f}",
        f"{layer.relative_l2:.2e}",
        "" if layer.saturated is None else f"{layer.saturated:.3%}",
        "" if layer.scale is None else f"{layer.scale:.4g}",
    )


def _ends(network: QuantizedNetwork) -> Iterator[str]:
    for output in network.outputs:
        yield f"output {output.name}: relative L2 error {output.relative_l2:.2e}, SNR {output.snr_db:.1f} dB"


def _search(search: FloatSearch) -> Iterator[str]:
    yield f"search: {len(search.kept)} layers in floating point keep the bound {search.bound:g}"
    for step in search.curve:
        mark = "  keeps the bound" if step.error <= search.bound else ""
        yield f"  {step.float_layers:4} in floating point: error {step.error:.2e}{mark}"
    errors = {layer.name: layer.error for layer in search.ranking}
    for name in search.kept:
        yield f"kept in floating point: {name} (alone {errors[name]:.2e})"


def _finite(value: object) -> object:
    match value:
        case dict():
            return {name: _finite(item) for name, item in value.items()}
        case list() | tuple():
            return [_finite(item) for item in value]
        case float() if not isfinite(value):
            return "inf" if value > 0 else "-inf"
    return value
