"""`dsa-sched models`: the networks that can be named instead of a file."""

from __future__ import annotations

import click


@click.command(short_help="List the networks that can be named instead of a file.")
def models() -> None:
    """List the networks of the zoo and how large they are, for one image or text as they were published.

    \b
    dsa-sched models
    dsa-sched verify squeezenet --chip stcp920
    dsa-sched verify vit_b16-mini --chip stcp920 --level O3

    GMACs count convolutions, matrix products and recurrences; activations are the outputs of these in fp16.

    Each network is a published topology with seeded weights, chosen such that values stay in the range of fp16 and
    outputs depend on inputs. The networks are for bringing up a chip; they recognise nothing. Nine topologies come with
    the onnx package. The others have the layers and parameters of their publications, except for resnet18_tailor (the
    convolutions of a ResNet-18 as a chain), unet (up-sampling, skips across the network) and nasnet (over a thousand
    operators in cells), which have few channels, and for the tables of dlrm (at most 100,000 rows). Batch and length of
    bert_base, bert_large and gpt2 are open: --shape gives them. NAME-mini is NAME with few layers for a small input.
    """
    from dsa_sched.report.listing import print_listing
    from dsa_sched.zoo import zoo_names
    from dsa_sched.zoo.sizes import network_size
    from hw_models.errors import size_text

    rows = [
        (
            size.name,
            f"{size.input} {list(size.shape)}" + (f" and {size.inputs - 1} more" if size.inputs > 1 else ""),
            str(size.operators),
            f"{size.parameters / 1e6:.1f} M" if size.parameters >= 1e6 else f"{size.parameters / 1e3:.0f} k",
            f"{size.macs / 1e9:.3f}",
            size_text(size.activation_bytes),
        )
        for size in map(network_size, zoo_names())
    ]
    headings = ("network", "input", "operators", "parameters", "GMACs", "activations")
    print_listing(headings, rows, right=(2, 3, 4, 5))
