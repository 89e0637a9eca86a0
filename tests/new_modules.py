"""PyTorch modules for `module:function`, each in a function that returns it with inputs."""

import torch
from torch import nn


class Net(nn.Module):
    """A small network of two inputs whose first dimensions are one, with a dict of outputs."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.convolution, self.norm, self.head = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 3)

    def forward(self, image, scale):
        features = torch.relu(self.norm(self.convolution(image))).mean((2, 3)) * scale
        return {"probabilities": torch.softmax(self.head(features), -1), "inner": [features, features + 1]}


class Rows(nn.Module):
    """Its input's second dimension is open, too; a constant argument; LayerNorm."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.norm = nn.LayerNorm(4)

    def forward(self, rows, factor=1.0):
        return self.norm(rows).sum(1) * factor, rows


def net():
    return Net(), (torch.randn(2, 1, 8, 8), torch.ones(2, 1))


def by_name():
    return Net(), {"image": torch.randn(2, 1, 8, 8), "scale": torch.ones(2, 1)}


def rows():
    sizes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length")}
    return Rows(), (torch.randn(2, 5, 4), 2.0), (sizes, None)


def nothing():
    return None


def fails():
    raise ValueError("there are no weights")
