"""What Python sees when a rank dies, hangs, aborts or disagrees: an exception that names the rank and the operation."""
import datetime
import os
import signal
import socket
import sys
import time
import unittest

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

import lockstep
from ranks import run_ranks

SHORT = datetime.timedelta(seconds=2)


def start(rank, size, path, timeout=datetime.timedelta(seconds=60)):
    dist.init_process_group("lockstep", init_method="file://" + path, rank=rank, world_size=size, timeout=timeout)


def error_of(function):
    """The exception's type and text."""
    try:
        function()
    except Exception as error:
        return type(error).__name__, str(error), isinstance(error, RuntimeError)
    return None


def train_until_killed(rank, size, path):
    start(rank, size, path)
    torch.manual_seed(0)
    model = DDP(torch.nn.Linear(100, 100))
    pids = [None] * size
    dist.all_gather_object(pids, os.getpid())

    def train():
        for step in range(1000):
            if rank == 1 and step == 3:
                os.kill(os.getpid(), signal.SIGKILL)
            model(torch.randn(8, 100)).sum().backward()

    error = error_of(train)
    again = error_of(lambda: dist.all_reduce(torch.ones(1)))
    return error, again, pids, lockstep.health()


def wait_for_rank_1(rank, size, path):
    start(rank, size, path, SHORT)
    error = error_of(lambda: dist.all_reduce(torch.ones(3))) if rank == 0 else time.sleep(4)
    return error, os.getpid()


def disagree(rank, size, path):
    start(rank, size, path)
    return error_of(lambda: dist.all_reduce(torch.ones(3 + rank)))


def aborted(rank, size, path):
    start(rank, size, path)
    if rank == 1:
        time.sleep(0.2)
        lockstep.abort("the validation loss is NaN")
    return error_of(lambda: dist.barrier() if rank == 0 else dist.all_reduce(torch.ones(1)))


def wrong_arguments(rank, size, path):
    start(rank, size, path)
    errors = [
        error_of(lambda: dist.all_reduce(torch.ones(2, dtype=torch.int16))),
        error_of(lambda: dist.all_gather([torch.zeros(2)] * size, torch.zeros(3))),
        error_of(lambda: dist.send(torch.ones(1), 1 - rank, tag=-5)),
        error_of(lambda: dist.all_to_all_single(torch.zeros(2), torch.zeros(3))),
    ]
    tensor = torch.ones(2)
    dist.all_reduce(tensor)  # the group is usable
    return errors, tensor.tolist()


def wait_with_a_timeout(rank, size, path):
    start(rank, size, path)
    tensor = torch.ones(1)
    if rank == 1:
        time.sleep(1)
    work = dist.all_reduce(tensor, async_op=True)
    early = error_of(lambda: work.wait(datetime.timedelta(milliseconds=50))) if rank == 0 else None
    work.wait()
    return early, tensor.item()


def missing_rank(rank, size, path):
    if rank == 1:
        time.sleep(4)
        return None
    return error_of(lambda: start(rank, size, path, SHORT))


class Failures(unittest.TestCase):
    def test_kill_of_a_rank_names_it_with_host_process_and_operation(self):
        (error, again, pids, health), _ = run_ranks(2, train_until_killed, expect=[0])
        name, text, is_runtime_error = error
        self.assertTrue(is_runtime_error, name)
        if not torch.__version__.startswith("1."):
            self.assertEqual(name, "DistBackendError")
        for part in ("rank 1", f"host {socket.gethostname().split('.')[0]}", f"pid {pids[1]}", "all_reduce(count 10100, f32"):
            self.assertIn(part, text)
        self.assertIn("rank 1", again[1])
        self.assertIn("peer_lost", health)

    def test_a_rank_that_is_late_is_named_at_the_deadline(self):
        (error, _), (_, pid) = run_ranks(2, wait_for_rank_1)
        self.assertIn("timed_out", error[1])
        self.assertIn(f"rank 1 (host {socket.gethostname().split('.')[0]}, pid {pid}) did not reach this operation", error[1])

    def test_different_operations_name_both_sides(self):
        for name, text, _ in run_ranks(2, disagree):
            self.assertIn("mismatch", text, name)
            self.assertIn("count 3", text)
            self.assertIn("count 4", text)

    def test_abort_ends_operations_with_its_reason(self):
        for _, text, _ in run_ranks(2, aborted):
            self.assertIn("the validation loss is NaN", text)

    def test_wrong_arguments_are_value_errors_and_the_group_stays_usable(self):
        for errors, tensor in run_ranks(2, wrong_arguments):
            self.assertEqual([error[0] for error in errors], ["ValueError"] * 4, errors)
            self.assertIn("Short", errors[0][1])
            self.assertEqual(tensor, [2, 2])

    def test_a_wait_may_end_before_its_operation(self):
        early, total = run_ranks(2, wait_with_a_timeout)[0]
        self.assertIn("only this wait has ended", early[1])
        self.assertEqual(total, 2)

    def test_a_rank_that_never_starts_is_named(self):
        error = run_ranks(2, missing_rank)[0]
        self.assertIn("rank 1", error[1])


if __name__ == "__main__":
    sys.exit(unittest.main())
