"""Fashion-MNIST from Debian's package dataset-fashion-mnist, prepared as fashion_mnist.h does."""
import gzip

import numpy
import torch

FOLDER = "/usr/share/datasets/fashion-mnist"


def _read(path, header):
    with gzip.open(path) as file:
        return torch.from_numpy(numpy.frombuffer(file.read(), dtype=numpy.uint8, offset=header).copy())


def load(train, folder=FOLDER):
    """Images (N, 1, 28, 28) and labels (N)."""
    stem = folder + ("/train-" if train else "/t10k-")
    images = _read(stem + "images-idx3-ubyte.gz", 16).view(-1, 1, 28, 28).float().div_(255).sub_(0.286).div_(0.353)
    return images, _read(stem + "labels-idx1-ubyte.gz", 8).long()


@torch.no_grad()
def test_accuracy(model):
    """The percentage of the test images that `model` classifies correctly."""
    images, labels = load(train=False)
    model.eval()
    right = sum((model(x).argmax(1) == y).sum().item() for x, y in zip(images.split(500), labels.split(500)))
    return 100 * right / len(labels)
