"""Sizes of the networks of the zoo: as published, from their topology alone."""

from __future__ import annotations

from itertools import pairwise

import pytest

from dsa_sched.zoo.sizes import network_size
from dsa_sched.zoo.topologies.dlrm import CRITEO_ROWS


@pytest.mark.parametrize(
    ("name", "learned"),
    [
        ("bert_base", 109_482_240),  # transformers: BertModel of bert-base-uncased
        ("bert_large", 335_141_888),  # transformers: BertModel of bert-large-uncased
        ("convnext_t", 28_589_128),  # torchvision: convnext_tiny
        ("gpt2", 124_439_808),  # transformers: GPT2LMHeadModel of gpt2
        ("siamese", 38_951_745),  # Koch et al., figure 4, layer by layer
        ("swin_t", 28_288_354),  # torchvision: swin_t
        ("vit_b16", 86_567_656),  # torchvision: vit_b_16
        ("vit_b16_384", 86_859_496),  # torchvision: vit_b_16, weights SWAG end to end
    ],
)
def test_parameters_are_those_that_are_published(name: str, learned: int) -> None:
    assert network_size(name).parameters == learned


@pytest.mark.parametrize(
    ("name", "learned", "normalised"),
    [
        ("efficientnet_b0", 5_288_548, 21_008),  # torchvision: efficientnet_b0
        ("inception_v3", 23_834_568, 17_216),  # torchvision: inception_v3, 27,161,264 less AuxLogits' 3,326,696
    ],
)
def test_parameters_with_statistics_of_norms(name: str, learned: int, normalised: int) -> None:
    """PyTorch does not count the mean and variance of normalised channels."""
    assert network_size(name).parameters == learned + 2 * normalised


def test_whisper_with_its_decoder_is_what_is_published() -> None:
    """transformers: 72,593,920 of WhisperModel of whisper-base. Six layers of the decoder attend twice, its tables have
    51,865 words and 448 places."""
    width, words, places, layers = 512, 51_865, 448, 6
    attention = 4 * width**2 + 3 * width
    layer = 2 * attention + (8 * width**2 + 5 * width) + 3 * 2 * width
    decoder = (words + places) * width + layers * layer + 2 * width
    assert network_size("whisper_encoder").parameters + decoder == 72_593_920


def test_dlrm_has_the_layers_of_mlperf_and_tables_of_the_terabyte() -> None:
    assert sum(CRITEO_ROWS) == 187_767_399
    below, above = (13, 512, 256, 128), (128 + 27 * 26 // 2, 1024, 1024, 512, 256, 1)
    layers = sum(inside * outside + outside for widths in (below, above) for inside, outside in pairwise(widths))
    rows = sum(min(rows, 100_000) for rows in CRITEO_ROWS)
    assert network_size("dlrm").parameters == layers + 128 * rows


def test_conformer_has_the_layers_of_the_paper() -> None:
    """No count of the encoder alone is published: 30.7 million are with a decoder of one LSTM of 640 states, of which
    the paper leaves input and vocabulary open. Counted here from its table and figures."""
    width, kernel = 256, 31
    feed_forward = 8 * width**2 + 5 * width
    attention = 5 * width**2 + 4 * width + 2 * width  # q, k, v, output and distances; two biases by head
    convolution = (2 * width**2 + 2 * width) + (kernel + 1) * width + 4 * width + (width**2 + width)
    layer = 2 * feed_forward + attention + convolution + 5 * 2 * width
    smaller = 10 * width + (9 * width + 1) * width + (20 * width + 1) * width
    size = network_size("conformer_m")
    assert size.parameters == 16 * layer + smaller
    lstm_and_joint = 30.7e6 - size.parameters
    assert 4 * 640 * 1280 < lstm_and_joint < 4 * 640 * (1280 + 2) + 640 * 256


def test_wide_deep_has_the_layers_of_the_paper() -> None:
    """1,200 numbers into 1,024, 512 and 256; tables are ours, no count is published."""
    tables = 100_000 + 36 * 10_000 * 32 + 2 * 20_000 * 256
    texts = (4 + 3) * 256 * (256 + 256 + 2)
    widths = (36 * 32 + 48 + 2 * 256, 1024, 512, 256, 1)
    assert 36 * 32 + 48 == 1200
    layers = sum(inside * outside + outside for inside, outside in pairwise(widths))
    assert network_size("wide_deep").parameters == tables + texts + layers


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("convnext_t", 4.46),
        ("efficientnet_b0", 0.39),
        ("inception_v3", 5.71),
        ("swin_t", 4.49),
        ("vit_b16", 17.56),
        ("vit_b16_384", 55.48),
    ],
)
def test_macs_are_those_of_torchvision(name: str, billions: float) -> None:
    """GFLOPS in its documentation."""
    assert round(network_size(name).macs / 1e9, 2) == billions


def test_macs_of_recurrences_and_of_open_lengths() -> None:
    wide = network_size("wide_deep")
    deep = sum(inside * outside for inside, outside in pairwise((1712, 1024, 512, 256, 1)))
    assert wide.macs == 96 * 7 * 256 * 512 + deep
    layer = 12 * 768**2 * 128 + 2 * 128 * 128 * 768
    assert network_size("bert_base").macs == 12 * layer + 768**2
    assert network_size("bert_base").shape == (1, 128)
    assert network_size("bert_base").inputs == 3
