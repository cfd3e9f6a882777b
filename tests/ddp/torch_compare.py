"""One rank of the comparison with PyTorch: trains what torch_compare_test.cpp trains, over Gloo.

torch_compare.py FOLDER: reads <case>.initial, writes <case>.torch (losses, then parameters, as float32).
"""
import array
import os
import sys

import torch
import torch.distributed as dist

sys.path.insert(0, os.environ["TORCH_MODELS_FOLDER"])
import torch_models  # noqa: E402

STEPS, BATCH = 8, 6


def read_floats(path):
    values = array.array("f")
    with open(path, "rb") as file:
        values.frombytes(file.read())
    return torch.tensor(values)


def make_optimizer(name, parameters):
    if name == "sgd":
        return torch.optim.SGD(parameters, 0.05, momentum=0.9)
    if name == "adam":
        return torch.optim.Adam(parameters, 1e-3)
    return torch.optim.AdamW(parameters, 1e-3, weight_decay=0.1)


def train(folder, model, optimizer_name, rank, ranks):
    case = os.path.join(folder, f"{model}_{optimizer_name}")
    module, data = torch_models.make(model)
    with torch.no_grad():
        initial, offset = read_floats(case + ".initial"), 0
        for parameter in module.parameters():
            parameter.copy_(initial[offset:offset + parameter.numel()].view_as(parameter))
            offset += parameter.numel()
        assert offset == initial.numel(), "the models differ"
    ddp = torch.nn.parallel.DistributedDataParallel(module)
    optimizer = make_optimizer(optimizer_name, ddp.parameters())
    losses = []
    for step in range(STEPS):
        inputs, target = data(BATCH, 1000 * step + 10 * rank)
        optimizer.zero_grad()
        loss = torch_models.loss_of(ddp(inputs), target)
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / ranks)
    if rank == 0:
        with open(case + ".torch", "wb") as file:
            array.array("f", losses).tofile(file)
            for parameter in module.parameters():
                array.array("f", parameter.detach().flatten().tolist()).tofile(file)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for model in ("small_mlp", "cnn", "small_gpt"):
        for optimizer in ("sgd", "adam", "adamw"):
            train(sys.argv[1], model, optimizer, dist.get_rank(), dist.get_world_size())
    dist.barrier()


main()
