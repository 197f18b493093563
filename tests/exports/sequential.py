"""Speech, tagging and recommendation: networks over sequences and tables, for those that transformers has not.

Sequences are [N, time, width] or token numbers [N, time]; recommenders take numbers [N, 13] and one index a table.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["Conformer", "Dlrm", "GruTagger", "LstmTagger", "WideAndDeep"]


def half_step(width: int) -> nn.Sequential:
    return nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))


class ConformerBlock(nn.Module):
    """Gulati et al. 2020: half a feed-forward step, attention, gated depthwise convolution, half a step."""

    def __init__(self, width: int, heads: int, kernel: int) -> None:
        super().__init__()
        self.before, self.behind = half_step(width), half_step(width)
        self.norm_attention, self.norm_convolution, self.norm = (nn.LayerNorm(width) for _ in range(3))
        self.heads, self.joined, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.gate = nn.Conv1d(width, 2 * width, 1)
        self.depthwise = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width)
        self.norm_batch = nn.BatchNorm1d(width)
        self.point = nn.Conv1d(width, width, 1)

    def attention(self, x: Tensor) -> Tensor:
        batch, time, width = x.shape
        query, key, value = self.joined(x).view(batch, time, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value)
        return self.out(mixed.transpose(1, 2).reshape(batch, time, width))

    def convolution(self, x: Tensor) -> Tensor:
        x = functional.glu(self.gate(x.transpose(1, 2)), dim=1)
        return self.point(functional.silu(self.norm_batch(self.depthwise(x)))).transpose(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = x + 0.5 * self.before(x)
        x = x + self.attention(self.norm_attention(x))
        x = x + self.convolution(self.norm_convolution(x))
        return self.norm(x + 0.5 * self.behind(x))


class Conformer(nn.Module):
    """Features [N, time, bins], halved in time twice by convolutions, then blocks."""

    def __init__(self, bins: int = 20, width: int = 32, heads: int = 4, kernel: int = 7, depth: int = 2) -> None:
        super().__init__()
        self.subsample = nn.Sequential(
            nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2, padding=1), nn.ReLU()
        )
        self.project = nn.Linear(8 * (bins // 4), width)
        self.blocks = nn.Sequential(*(ConformerBlock(width, heads, kernel) for _ in range(depth)))

    def forward(self, features: Tensor) -> Tensor:
        x = self.subsample(features.unsqueeze(1))
        return self.blocks(self.project(x.transpose(1, 2).flatten(2)))


class LstmTagger(nn.Module):
    """A tag for every token, by a network that reads both ways."""

    def __init__(self, tokens: int = 100, width: int = 16, hidden: int = 24, tags: int = 5) -> None:
        super().__init__()
        self.embed = nn.Embedding(tokens, width)
        self.lstm = nn.LSTM(width, hidden, batch_first=True, bidirectional=True)
        self.tags = nn.Linear(2 * hidden, tags)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.tags(self.lstm(self.embed(tokens))[0])


class GruTagger(nn.Module):
    """A tag for every token, two layers deep."""

    def __init__(self, tokens: int = 100, width: int = 16, hidden: int = 24, tags: int = 5) -> None:
        super().__init__()
        self.embed = nn.Embedding(tokens, width)
        self.gru = nn.GRU(width, hidden, num_layers=2, batch_first=True)
        self.tags = nn.Linear(hidden, tags)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.tags(self.gru(self.embed(tokens))[0])


class Dlrm(nn.Module):
    """Naumov et al. 2019: a row of every table, products of all pairs, then fully connected layers."""

    def __init__(self, numbers: int = 13, tables: tuple[int, ...] = (50, 20, 80, 30), width: int = 8) -> None:
        super().__init__()
        self.bottom = nn.Sequential(nn.Linear(numbers, 32), nn.ReLU(), nn.Linear(32, width), nn.ReLU())
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for rows in tables)
        values = len(tables) + 1
        self.pairs = torch.tril_indices(values, values, -1)
        self.top = nn.Sequential(nn.Linear(width + values * (values - 1) // 2, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, numbers: Tensor, indices: Tensor) -> Tensor:
        dense = self.bottom(numbers)
        rows = [table(indices[:, number]) for number, table in enumerate(self.tables)]
        values = torch.stack([dense, *rows], 1)
        products = values @ values.transpose(1, 2)
        return torch.sigmoid(self.top(torch.cat([dense, products[:, self.pairs[0], self.pairs[1]]], 1)))


class WideAndDeep(nn.Module):
    """Cheng et al. 2016: a weight for every category beside fully connected layers over embeddings."""

    def __init__(self, numbers: int = 13, tables: tuple[int, ...] = (40, 25, 60), width: int = 8) -> None:
        super().__init__()
        self.wide = nn.ModuleList(nn.Embedding(rows, 1) for rows in tables)
        self.wide_numbers = nn.Linear(numbers, 1)
        self.deep = nn.ModuleList(nn.Embedding(rows, width) for rows in tables)
        self.layers = nn.Sequential(
            nn.Linear(numbers + width * len(tables), 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 1)
        )

    def forward(self, numbers: Tensor, indices: Tensor) -> Tensor:
        columns = indices.unbind(1)
        wide = self.wide_numbers(numbers)
        for table, column in zip(self.wide, columns, strict=True):
            wide = wide + table(column)
        rows = [table(column) for table, column in zip(self.deep, columns, strict=True)]
        return torch.sigmoid(wide + self.layers(torch.cat([numbers, *rows], 1)))
