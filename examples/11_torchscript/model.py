#!/usr/bin/env python3
"""The Python side of lesson 11: defines a model for the C++ program, and evaluates what that has trained.

    model.py define model.pt [--model cnn]      a scripted model with random parameters
    model.py evaluate trained.pt                its accuracy on the test images of Fashion-MNIST
"""
import argparse
import os
import sys

import torch
from torch import nn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "common"))
import fashion_mnist  # noqa: E402


class Cnn(nn.Module):
    """Two blocks of convolution and batch norm. Its forward has control flow, which scripting keeps."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([self.block(1, 16), self.block(16, 32)])
        self.classifier = nn.Sequential(nn.Linear(32 * 7 * 7, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 10))

    @staticmethod
    def block(inputs, outputs):
        return nn.Sequential(nn.Conv2d(inputs, outputs, 5, padding=2), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2))

    def forward(self, images):
        for block in self.blocks:
            images = block(images)
        if images.dim() != 2:
            images = images.flatten(1)
        return self.classifier(images)


def mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, 256), nn.ReLU(), nn.Linear(256, 10))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["define", "evaluate"])
    parser.add_argument("path")
    parser.add_argument("--model", choices=["cnn", "mlp"], default="cnn")
    arguments = parser.parse_args()
    if arguments.command == "define":
        torch.manual_seed(1)
        torch.jit.script(Cnn() if arguments.model == "cnn" else mlp()).save(arguments.path)
    else:
        print(f"test accuracy {fashion_mnist.test_accuracy(torch.jit.load(arguments.path)):.2f} %")


if __name__ == "__main__":
    main()
