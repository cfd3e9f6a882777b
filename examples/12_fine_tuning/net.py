#!/usr/bin/env python3
"""The Python side of lesson 12: trains a network on the first five classes of Fashion-MNIST, and evaluates one on all ten.

    net.py pretrain pretrained.pt [--steps 300]     torch.save(model.state_dict(), path)
    net.py evaluate finetuned.pt                    what the C++ program has saved
"""
import argparse
import os
import sys

import torch
from torch import nn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "common"))
import fashion_mnist  # noqa: E402


class FashionNet(nn.Module):
    """The same layers and names as in common/fashion_net.h."""

    def __init__(self, classes=10):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 5, padding=2), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 5, padding=2), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2))
        self.classifier = nn.Sequential(nn.Linear(32 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, classes))

    def forward(self, images):
        return self.classifier(self.features(images).flatten(1))


def pretrain(path, steps, classes=5, batch=64):
    torch.manual_seed(1)
    images, labels = fashion_mnist.load(train=True)
    chosen = (labels < classes).nonzero().flatten()[torch.randperm(int((labels < classes).sum()))]
    model = FashionNet(classes)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for indices in chosen.split(batch)[:steps]:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images[indices]), labels[indices])
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.3f} on {classes} classes")
    torch.save(model.state_dict(), path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["pretrain", "evaluate"])
    parser.add_argument("path")
    parser.add_argument("--steps", type=int, default=300)
    arguments = parser.parse_args()
    if arguments.command == "pretrain":
        pretrain(arguments.path, arguments.steps)
    else:
        model = FashionNet()
        model.load_state_dict(torch.load(arguments.path))
        print(f"test accuracy {fashion_mnist.test_accuracy(model):.2f} %")


if __name__ == "__main__":
    main()
