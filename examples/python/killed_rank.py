#!/usr/bin/env python3
"""What a killed rank looks like with Gloo and with Lockstep, from two real runs. Tutorial 6 explains the output.

    python3 examples/python/killed_rank.py [--ranks 3]

Each cell (# %%) can be run by itself in an editor with notebooks. The same training, PyTorch's DistributedDataParallel
under `lockstep run`, runs once on each backend. In the middle of it one rank is killed with kill -9.
"""
# %% The training: nothing in it depends on the backend but its name.
import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import time


def train(backend):
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    import lockstep  # noqa: F401, registers the backend

    dist.init_process_group(backend)
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(100, 500), torch.nn.Tanh(), torch.nn.Linear(500, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    print(f"rank {rank} is process {os.getpid()}", flush=True)
    began = time.time()
    try:
        for step in range(100_000):
            began = time.time()
            optimizer.zero_grad()
            model(torch.randn(32, 100)).square().mean().backward()
            optimizer.step()
            if step == 20:
                print(f"rank {rank} trains", flush=True)
    except RuntimeError as error:
        # The first line: on some versions of PyTorch a C++ backtrace follows.
        text = str(error).splitlines()[0]
        print(f"rank {rank}: backward() raised {type(error).__name__} {time.time() - began:.1f} s after the step began:\n"
              f"{text}", flush=True)
        sys.exit(1)


# %% One run: start the ranks, wait until all of them train, kill rank 1, and collect what is printed.
def run_and_kill(backend, ranks, victim=1):
    command = [os.environ.get("LOCKSTEP_COMMAND") or shutil.which("lockstep") or sys.exit("the lockstep command is missing"),
               "run", "--nproc-per-node", str(ranks), "--python", sys.executable, os.path.abspath(__file__), "--train", backend]
    job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    processes, trains, lines, killed = {}, 0, [], None
    for line in job.stdout:
        lines.append(line.rstrip())
        is_process = re.search(r"rank (\d+) is process (\d+)", line)
        if is_process:
            processes[int(is_process[1])] = int(is_process[2])
        trains += line.rstrip().endswith("trains")
        if trains == ranks and killed is None:
            killed = time.time()
            os.kill(processes[victim], signal.SIGKILL)
            lines.append(f"$ kill -9 {processes[victim]}        # rank {victim}")
    job.wait()
    return lines, time.time() - killed


# %% Both runs, one after the other.
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--train", metavar="BACKEND", help="be a rank (used by the program itself)")
    arguments = parser.parse_args()
    if arguments.train:
        return train(arguments.train)
    for backend in ("gloo", "lockstep"):
        lines, seconds = run_and_kill(backend, arguments.ranks)
        print(f"===== {backend}: the job ended {seconds:.1f} s after the kill")
        print("\n".join(lines))


if __name__ == "__main__":
    main()
