"""`dsa-sched models`: the networks that can be named instead of a file."""

from __future__ import annotations

import click

__all__ = ["models"]


@click.command(short_help="List the networks that can be named instead of a file.")
def models() -> None:
    """List the networks of the zoo: their input, operators and parameters.

    \b
    dsa-sched models
    dsa-sched verify squeezenet --chip stcp920

    Each is a published topology with seeded weights of its own, calibrated so that values stay in the range of half
    precision and outputs depend on inputs. They are for bringing up a chip; they recognise nothing. Nine topologies
    come with the onnx package; unet (up-sampling, skips across the network) and nasnet (over a thousand operators in
    cells with many branches) are built here with few channels.
    """
    from dsa_sched.report.listing import print_listing
    from dsa_sched.zoo import zoo_names
    from dsa_sched.zoo.sizes import network_size

    rows = [
        (size.name, f"{size.input} {list(size.shape)}", str(size.operators), f"{size.parameters / 1e6:.1f} M")
        for size in map(network_size, zoo_names())
    ]
    print_listing(("network", "input", "operators", "parameters"), rows, right=(2, 3))
