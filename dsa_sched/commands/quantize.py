"""`dsa-sched quantize`: a network in floating point becomes one with int8 layers, by calibration."""

from __future__ import annotations

from pathlib import Path

import click

from dsa_sched.commands.options import Binding, Shape, shape_options


@click.command(short_help="Quantise a model to int8, after training.")
@click.argument("model", metavar="MODEL")
@click.option(
    "--calibrate",
    metavar="FOLDER|FILE.npz|seeded",
    help="Inputs that show how large values become: a folder of .npz files, one file, or `seeded` for drawn ones. Each "
    "file holds one array per input of the network. Needed, except with --weights-only.",
)
@click.option(
    "--method",
    type=click.Choice(["minmax", "entropy", "percentile"]),
    default="minmax",
    show_default=True,
    help="How the range of a value follows from what occurs: all of it, the range that loses least information, or all "
    "but 0.01 percent of the magnitudes.",
)
@click.option(
    "--keep-float",
    multiple=True,
    metavar="OP|NAME",
    help="Leave operators of a type (Gemm) or one node by its name in floating point. May be repeated.",
)
@click.option(
    "--weights-only",
    is_flag=True,
    help="Store only the weights of Conv, Gemm and MatMul as int8; values are computed in floating point.",
)
@click.option(
    "--per-layer",
    is_flag=True,
    help="One scale for all weights of a layer, where one per output channel costs more: on gemmini.",
)
@click.option(
    "--search",
    is_flag=True,
    help="Leave as few layers in floating point as keep the --bound.",
)
@click.option(
    "--bound",
    type=click.FloatRange(0, min_open=True),
    metavar="E",
    help="With --search: largest relative L2 error of the outputs, over all calibration inputs.",
)
@click.option(
    "--inputs", type=click.IntRange(1, 4096), default=8, show_default=True, help="Number of inputs that are drawn."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the inputs that are drawn.")
@shape_options
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path), metavar="FILE", help="Write the report as JSON, too."
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    metavar="OUT.onnx",
    help="The quantised ONNX file.",
)
def quantize(
    model: str,
    calibrate: str | None,
    method: str,
    keep_float: tuple[str, ...],
    weights_only: bool,
    per_layer: bool,
    search: bool,
    bound: float | None,
    inputs: int,
    seed: int,
    shapes: tuple[Shape, ...],
    batch: int | None,
    bindings: tuple[Binding, ...],
    json_file: Path | None,
    output: Path,
) -> None:
    """Quantise MODEL, an ONNX file or a network of the zoo (see: dsa-sched models), without training it again.

    \b
    dsa-sched quantize mine.onnx --calibrate inputs/ -o mine_int8.onnx
    dsa-sched quantize mine.onnx --calibrate inputs/ --search --bound 0.02 -o mine_int8.onnx
    dsa-sched quantize resnet50 --calibrate seeded --keep-float Gemm --json report.json -o int8.onnx

    The file that is written holds QuantizeLinear and DequantizeLinear around its layers (QDQ format); `compile` makes
    int8 kernels of it for chips that have them, and onnxruntime runs it as it is. Values are int8 with the zero point
    0, weights int8 with one scale per output channel, biases int32. A Relu or Clip after a layer comes before the
    rounding. BatchNormalization is folded into convolutions first. Norms, softmax and other functions stay in floating
    point.

    The report has one row per layer: the error of its value against the network in floating point, with all errors
    from the layers before it (signal-to-noise ratio and relative L2), the share of its elements beyond the range of
    int8, and its scale, where the value is rounded. The inputs are those of the calibration.

    With --search, layers are ranked by the error at the outputs that each makes if it alone is quantised. The worst
    stay in floating point until the bound holds; then each of these is quantised if the bound still holds. The curve
    shows the error for each number of layers in floating point that was tried.

    Use inputs that the network meets in its work, some dozens of them. Drawn inputs show that a network can be
    quantised, not how well.
    """
    if search != (bound is not None):
        raise click.UsageError("--search and --bound belong together: --search --bound 0.02.")
    if calibrate is None and not weights_only:
        raise click.UsageError("--calibrate is needed: a folder of .npz files, one .npz file, or seeded.")
    from dsa_sched.commands.options import require_different
    from dsa_sched.io.atomic_write import require_file
    from dsa_sched.quantisation.quantise import QuantizeOptions, quantised_network
    from dsa_sched.report.progress import ProgressSteps
    from dsa_sched.report.quantised import print_quantised, write_quantised

    outputs = [output, *([json_file] if json_file is not None else [])]
    require_different([Path(model), *outputs])
    for path in outputs:
        require_file(path)
    options = QuantizeOptions(
        calibrate, method, keep_float, weights_only, bound, inputs, seed, tuple(shapes), batch, tuple(bindings),
        per_layer,
    )  # fmt: skip
    with ProgressSteps() as steps:
        network = quantised_network(model, options, steps.say)
    print_quantised(network)
    network.save(output)
    if json_file is not None:
        write_quantised(network, json_file)
