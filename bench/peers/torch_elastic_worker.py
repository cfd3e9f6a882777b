"""One rank of `lockstep bench elastic` in PyTorch: see bench/ddp/elastic_worker.cpp, which trains the same.

torch_elastic_worker.py MODEL BATCH FOLDER SNAPSHOT STEPS
Trains until it is ended, from the snapshot if there is one; rank 0 writes one after every STEPS steps.
What it does when goes to FOLDER/<pid>; bench/driver/elastic/step_log.h says how.
"""
import ctypes
import os
import signal
import sys
import time

import torch
import torch.distributed as dist

import torch_models

DIFFERENT_SAMPLES = 512


def process_start():
    """When this process was forked, on the monotonic clock; the kernel reports it in ticks since the boot."""
    with open("/proc/self/stat") as stat:
        ticks = int(stat.read().rpartition(")")[2].split()[19])
    since_boot = ticks * (10**9 // os.sysconf("SC_CLK_TCK"))
    return time.monotonic_ns() - (time.clock_gettime_ns(time.CLOCK_BOOTTIME) - since_boot)


def save(path, module, optimizer, step):
    torch.save({"model": module.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, path + ".new")
    os.replace(path + ".new", path)


def main():
    name, batch, folder, snapshot, snapshot_steps = sys.argv[1:6]
    # End with the launcher, however it ends.
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    log = os.open(f"{folder}/{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def line(*words):
        os.write(log, (" ".join(str(word) for word in words) + "\n").encode())

    torch.set_num_threads(1)
    torch.manual_seed(1)
    module, data = torch_models.make(name)
    inputs, targets = data(DIFFERENT_SAMPLES, 100)
    optimizer = torch.optim.SGD(module.parameters(), 1e-3, momentum=0.9)
    line("enter", time.monotonic_ns(), os.getpid(), process_start())
    generation = int(os.environ["TORCHELASTIC_RESTART_COUNT"]) + 1
    # The store outlives a restart. PyTorch 2.6 to 2.14 use no separate prefix for each attempt, so that a rank may
    # find the address of a dead rank, and wait for it.
    store, rank, ranks = next(dist.rendezvous("env://"))
    dist.init_process_group("gloo", store=dist.PrefixStore(f"attempt_{generation}", store), rank=rank, world_size=ranks)
    step = 0
    if os.path.exists(snapshot):
        saved = torch.load(snapshot)
        module.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        step = saved["step"]
    model = torch.nn.parallel.DistributedDataParallel(module)
    samples = torch.Generator().manual_seed(rank)
    while True:
        index = torch.randint(0, DIFFERENT_SAMPLES, (int(batch),), generator=samples)
        optimizer.zero_grad(set_to_none=True)
        torch_models.loss_of(model(inputs[index]), targets[index]).backward()
        optimizer.step()
        step += 1
        line("step", step, time.monotonic_ns(), os.getpid(), generation, rank, ranks)
        if rank == 0 and step % int(snapshot_steps) == 0:
            save(snapshot, module, optimizer, step)


main()
