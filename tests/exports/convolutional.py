"""Convolutional networks as their papers draw them, narrow: for those that transformers has no configuration of.

Inputs are images [N, 3, H, W] in [0, 1) or so; outputs class scores [N, C], or, of the U-Net, scores of pixels.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["DenseNet", "MlpMixer", "SqueezeNet", "UNet", "VideoNet"]


class DoubleConvolution(nn.Sequential):
    """Two 3x3 convolutions, each normalised and cut at zero."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
        )


class UNet(nn.Module):
    """Ronneberger et al. 2015: down by max-pooling, up by transposed convolutions, with what was before beside it."""

    def __init__(self, width: int = 8, classes: int = 2) -> None:
        super().__init__()
        self.first = DoubleConvolution(3, width)
        self.second = DoubleConvolution(width, 2 * width)
        self.bottom = DoubleConvolution(2 * width, 4 * width)
        self.up_second = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.back_second = DoubleConvolution(4 * width, 2 * width)
        self.up_first = nn.ConvTranspose2d(2 * width, width, 3, stride=2, padding=1, output_padding=1)
        self.back_first = DoubleConvolution(2 * width, width)
        self.scores = nn.Conv2d(width, classes, 1)

    def forward(self, image: Tensor) -> Tensor:
        first = self.first(image)
        second = self.second(functional.max_pool2d(first, 2))
        bottom = self.bottom(functional.max_pool2d(second, 2))
        x = self.back_second(torch.cat([self.up_second(bottom), second], 1))
        return self.scores(self.back_first(torch.cat([self.up_first(x), first], 1)))


class DenseLayer(nn.Module):
    """Norm, 1x1, norm, 3x3: `growth` new channels beside those that came in."""

    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.reduce = nn.Sequential(nn.BatchNorm2d(inputs), nn.ReLU(), nn.Conv2d(inputs, 4 * growth, 1, bias=False))
        self.grow = nn.Sequential(
            nn.BatchNorm2d(4 * growth), nn.ReLU(), nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.grow(self.reduce(x))], 1)


class DenseNet(nn.Sequential):
    """Huang et al. 2017: dense blocks, halved in channels and size between."""

    def __init__(self, blocks: tuple[int, ...] = (2, 3, 2), growth: int = 8, classes: int = 10) -> None:
        channels = 2 * growth
        parts: list[nn.Module] = [
            nn.Conv2d(3, channels, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2, padding=1),
        ]
        for number, layers in enumerate(blocks):
            if number:
                parts += [nn.BatchNorm2d(channels), nn.ReLU(), nn.Conv2d(channels, channels // 2, 1, bias=False)]
                parts += [nn.AvgPool2d(2)]
                channels //= 2
            parts += [DenseLayer(channels + growth * layer, growth) for layer in range(layers)]
            channels += growth * layers
        parts += [nn.BatchNorm2d(channels), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        super().__init__(*parts, nn.Linear(channels, classes))


class Fire(nn.Module):
    """SqueezeNet's module: few channels, from which 1x1 and 3x3 make many."""

    def __init__(self, inputs: int, squeezed: int, expanded: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(inputs, squeezed, 1)
        self.small = nn.Conv2d(squeezed, expanded, 1)
        self.large = nn.Conv2d(squeezed, expanded, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.squeeze(x))
        return torch.cat([functional.relu(self.small(x)), functional.relu(self.large(x))], 1)


class SqueezeNet(nn.Sequential):
    """Iandola et al. 2016; pools round up, the classifier is a convolution."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__(
            nn.Conv2d(3, 16, 3, stride=2),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2, ceil_mode=True),
            Fire(16, 4, 16),
            Fire(32, 4, 16),
            nn.MaxPool2d(3, stride=2, ceil_mode=True),
            Fire(32, 8, 32),
            nn.Dropout(0.5),
            nn.Conv2d(64, classes, 1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )


class VideoNet(nn.Sequential):
    """Convolutions and pools over time, height and width (C3D, Tran et al. 2015). Input [N, 3, T, H, W]."""

    def __init__(self, classes: int = 5) -> None:
        super().__init__(
            nn.Conv3d(3, 8, 3, padding=1),
            nn.BatchNorm3d(8),
            nn.ReLU(),
            nn.MaxPool3d((1, 2, 2)),
            nn.Conv3d(8, 16, 3, stride=(2, 1, 1), padding=1),
            nn.ReLU(),
            nn.AvgPool3d(2),
            nn.AdaptiveAvgPool3d(1),
            nn.Flatten(),
            nn.Linear(16, classes),
        )


class MixerBlock(nn.Module):
    """Products along the patches, then along the channels."""

    def __init__(self, patches: int, width: int) -> None:
        super().__init__()
        self.norm_patches, self.norm_width = nn.LayerNorm(width), nn.LayerNorm(width)
        self.patches = nn.Sequential(nn.Linear(patches, 2 * patches), nn.GELU(), nn.Linear(2 * patches, patches))
        self.width = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.patches(self.norm_patches(x).transpose(1, 2)).transpose(1, 2)
        return x + self.width(self.norm_width(x))


class MlpMixer(nn.Module):
    """Tolstikhin et al. 2021."""

    def __init__(self, size: int = 32, patch: int = 8, width: int = 32, depth: int = 2, classes: int = 10) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, width, patch, stride=patch)
        self.blocks = nn.Sequential(*(MixerBlock((size // patch) ** 2, width) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, image: Tensor) -> Tensor:
        x = self.embed(image).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.blocks(x)).mean(1))
