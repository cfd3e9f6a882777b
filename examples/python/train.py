#!/usr/bin/env python3
"""Trains a small classifier with PyTorch's DistributedDataParallel on backend "lockstep".

    lockstep run --nproc-per-node 2 examples/python/train.py
    torchrun --nproc_per_node 2 examples/python/train.py     # Debian 12: python3 -m lockstep.torchrun
    srun python3 examples/python/train.py
"""
import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import lockstep  # registers the backend


def make_data(samples):
    """Points on two spirals, the same on all ranks."""
    generator = torch.Generator().manual_seed(0)
    radius = torch.rand(samples, generator=generator)
    label = torch.arange(samples) % 2
    angle = 4 * radius + 3.14159 * label
    noise = 0.02 * torch.randn(samples, 2, generator=generator)
    return TensorDataset(torch.stack([radius * angle.cos(), radius * angle.sin()], 1) + noise, label)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--samples", type=int, default=2000)
    arguments = parser.parse_args()

    dist.init_process_group("lockstep")
    rank = dist.get_rank()
    if rank == 0:
        print(lockstep.describe())

    torch.manual_seed(rank)  # DDP gives all ranks the parameters of rank 0
    model = DistributedDataParallel(nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    data = make_data(arguments.samples)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=50, sampler=sampler)

    step, epoch = 0, 0
    while step < arguments.steps:
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            step += 1
            if step % 100 == 0:
                dist.all_reduce(loss.detach(), op=dist.ReduceOp.AVG)
                if rank == 0:
                    print(f"step {step}: loss {loss.item():.4f}")
            if step == arguments.steps:
                break
        epoch += 1

    # The same bits on every rank.
    flat = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    lowest, highest = flat.clone(), flat.clone()
    dist.all_reduce(lowest, op=dist.ReduceOp.MIN)
    dist.all_reduce(highest, op=dist.ReduceOp.MAX)
    if not torch.equal(lowest, highest):
        raise SystemExit(f"rank {rank}: the parameters differ between ranks")
    if rank == 0:
        accuracy = (model.module(data.tensors[0]).argmax(1) == data.tensors[1]).float().mean()
        print(f"all ranks have the same parameters; accuracy {accuracy:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
