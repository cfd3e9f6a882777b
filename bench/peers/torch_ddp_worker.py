"""One rank of `lockstep bench ddp` in PyTorch: see bench/ddp/ddp_worker.cpp, which does the same.

torch_ddp_worker.py MODEL BATCH plain|torch FIFOS sgd|adamw
"""
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist

import torch_models


def status_mib(field):
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith(field + ":"):
                return int(line.split()[1]) / 1024
    return 0


def make_optimizer(name, module):
    """The fastest that this version has: fused on the CPU since 2.4."""
    make = {"sgd": lambda **options: torch.optim.SGD(module.parameters(), 1e-3, momentum=0.9, **options),
            "adamw": lambda **options: torch.optim.AdamW(module.parameters(), 1e-4, **options)}[name]
    try:
        return make(fused=True)
    except (TypeError, RuntimeError):
        return make()


def main():
    name, batch, mode, fifos, optimizer_name = sys.argv[1:6]
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if ranks <= os.cpu_count():
        os.sched_setaffinity(0, {rank})
    module, data = torch_models.make(name)
    inputs, target = data(int(batch), 100 + rank)
    model = torch.nn.parallel.DistributedDataParallel(module) if mode == "torch" else module
    optimizer = make_optimizer(optimizer_name, module)

    with open(f"{fifos}.{rank}.commands") as lines, open(f"{fifos}.{rank}.answers", "w") as answers:
        for line in lines:
            both, every = [], []
            for _ in range(int(line)):
                dist.barrier()
                start = time.perf_counter()
                optimizer.zero_grad(set_to_none=True)
                loss = torch_models.loss_of(model(inputs), target)
                loss.backward()
                both.append(time.perf_counter() - start)
                optimizer.step()
                every.append(time.perf_counter() - start)
            print(1e3 * statistics.median(both), 1e3 * statistics.median(every), 0, status_mib("VmRSS"),
                  status_mib("VmHWM"), loss.item(), file=answers, flush=True)


main()
