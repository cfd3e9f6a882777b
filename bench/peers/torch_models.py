"""The models of bench/ddp/models.h in PyTorch, with parameters in the same order."""
import math

import torch
from torch import nn

import torch_store  # noqa: F401


def mlp(widths):
    layers = []
    for i in range(len(widths) - 1):
        if i > 0:
            layers.append(nn.ReLU())
        layers.append(nn.Linear(widths[i], widths[i + 1]))
    return nn.Sequential(*layers)


class FashionNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 5, padding=2), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 5, padding=2), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2))
        self.classifier = nn.Sequential(nn.Linear(32 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, 10))

    def forward(self, images):
        return self.classifier(self.features(images).flatten(1))


class Block(nn.Module):
    def __init__(self, context, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.norm2 = nn.LayerNorm(width)
        self.attention = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        # Not a buffer: Gloo cannot broadcast bool.
        self.mask = torch.ones(context, context, dtype=torch.bool).triu(1)

    def attend(self, x):
        batch, length, width = x.shape
        parts = self.attention(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        weights = parts[0].matmul(parts[1].transpose(-2, -1)) / math.sqrt(width // self.heads)
        weights = weights.masked_fill(self.mask[:length, :length], -1e9).softmax(-1)
        return weights.matmul(parts[2]).transpose(1, 2).reshape(batch, length, width)

    def forward(self, x):
        x = x + self.projection(self.attend(self.norm1(x)))
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    def __init__(self, vocabulary, context, width, heads, layers):
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(context, width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.token(tokens) + self.position(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def loss_of(output, target):
    return nn.functional.cross_entropy(output.flatten(0, -2), target.flatten())


def make(name):
    """The model, and a function (samples, seed) -> (input, target)."""
    def generator(seed):
        return torch.Generator().manual_seed(seed)

    def labels(shape, classes, seed):
        return torch.randint(0, classes, shape, generator=generator(seed + 1))

    if name in ("mlp", "small_mlp"):
        widths = [1024, 2048, 2048, 2048, 2048, 2048, 10] if name == "mlp" else [20, 64, 32, 10]
        return mlp(widths), lambda n, seed: (
            torch.randn(n, widths[0], generator=generator(seed)), labels((n,), 10, seed))
    if name == "cnn":
        return FashionNet(), lambda n, seed: (
            torch.randn(n, 1, 28, 28, generator=generator(seed)), labels((n,), 10, seed))
    shape = dict(vocabulary=96, context=64, width=192, heads=6, layers=4) if name == "gpt" else \
        dict(vocabulary=32, context=16, width=32, heads=2, layers=2)
    size = (shape["context"],)
    return Gpt(**shape), lambda n, seed: (
        torch.randint(0, shape["vocabulary"], (n,) + size, generator=generator(seed)),
        labels((n,) + size, shape["vocabulary"], seed))
