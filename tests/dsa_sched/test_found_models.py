"""Small models that random search found to be wrong or refused for no reason, at every level against O0."""

from __future__ import annotations

from collections.abc import Callable

import onnx
import pytest

from hw_models.chip import Chip
from tests.chip_runs import small_chip, stcp920
from tests.dsa_sched.frontend.onnx_models import ModelBuilder
from tests.fuzz.levels_agree import WAYS, compare, feed_of, load

KIB = 1024


def small(cores: int, data_kib: int) -> Chip:
    return small_chip(cores, data_kib * KIB, 4 * KIB, 16 * KIB, 1024 * KIB)


def softmax_over_the_only_axis(b: ModelBuilder) -> str:
    """Its largest element is one number, a value without axes inside the operator."""
    return b.node("Flatten", b.node("Softmax", b.input(128)), axis=1)


def images_of_padding(b: ModelBuilder) -> str:
    """The first and the last image hold nothing of the input, which an instance of theirs need not find."""
    x = b.node("DepthToSpace", b.input(1, 12, 6, 7), blocksize=2)
    return b.node("Pad", x, b.integers(1, 1, 0, -1, 1, -1, -1, 1))


def images_of_padding_behind_a_view(b: ModelBuilder) -> str:
    """The instance in the middle is all padding and says nothing of the first one, whose cores cannot each hold a part
    of the view."""
    y = b.node("Conv", b.input(1, 7, 8, 8), b.weights(7, 7, 1, 1))
    return b.node("Pad", b.node("Flatten", y), b.integers(0, 0, 2, 2))


def exchange_behind_a_store(b: ModelBuilder) -> str:
    """What leaves the staging memory for the main memory lies where the cores exchange the next layer's output."""
    x = b.node("Relu", b.input(3, 2, 3, 2, 4))
    b.node("Transpose", x, perm=[1, 4, 2, 3, 0], outputs=["turned"])
    y = b.node("ReduceSum", x, b.integers(1, 3))
    return b.node(
        "ReduceSumSquare", b.node("InstanceNormalization", y, b.weights(1), b.weights(1)), b.integers(0, 1, 3, 4)
    )


FOUND: dict[str, tuple[Callable[[ModelBuilder], str], tuple[str, ...], Chip]] = {
    "softmax over the only axis": (softmax_over_the_only_axis, (), stcp920()),
    "images of padding": (images_of_padding, (), small(8, 6)),
    "images of padding behind a view": (images_of_padding_behind_a_view, (), stcp920()),
    "exchange behind a store": (exchange_behind_a_store, ("turned",), small(3, 64)),
}


@pytest.mark.spread(2)
@pytest.mark.parametrize("name", FOUND)
@pytest.mark.commit
def test_what_random_search_found(name: str) -> None:
    build, others, chip = FOUND[name]
    builder = ModelBuilder()
    model = builder.model(build(builder), *others)
    model = onnx.shape_inference.infer_shapes(model)
    found = compare(load(model), chip, feed_of(model, 0), 0)
    assert not found.differences, found.differences[0]
    assert found.ran == WAYS
