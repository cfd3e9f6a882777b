"""Every operation of torch.distributed on backend "lockstep", with what PyTorch's own tests leave out."""
import datetime
import os
import sys
import threading
import unittest

import torch
import torch.distributed as dist

import lockstep  # noqa: F401, registers the backend
from lockstep._load import extension
from ranks import run_ranks, tcp_store

RANKS = 3


def start(rank, size, path):
    dist.init_process_group("lockstep", init_method="file://" + path, rank=rank, world_size=size,
                            timeout=datetime.timedelta(seconds=60))


def group(function):
    """The function as one rank's part of a test, inside a group."""
    def part(rank, size, path):
        start(rank, size, path)
        result = function(rank, size)
        dist.barrier()
        dist.destroy_process_group()
        return result

    return part


def reductions(rank, size):
    results = {}
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int32,
                  torch.int64):
        for op in ("SUM", "PRODUCT", "MIN", "MAX", "AVG"):
            tensor = torch.tensor([rank + 1, 2, 3 * rank]).to(dtype)
            dist.all_reduce(tensor, getattr(dist.ReduceOp, op))
            results[str(dtype), op] = tensor.tolist()
    for op in ("SUM", "PRODUCT", "MIN", "MAX"):
        tensor = torch.tensor([rank == 0, True, False])
        dist.all_reduce(tensor, getattr(dist.ReduceOp, op))
        results["bool", op] = tensor.tolist()
    return results


def strided(rank, size):
    """Tensors that are not contiguous, in every operation that writes one."""
    base = torch.arange(12.).view(3, 4) + 100 * rank
    reduced, sent = base.clone().t(), base.clone().t()
    dist.all_reduce(reduced)
    dist.broadcast(sent, 1)
    gathered = [torch.zeros(4, 3).t() for _ in range(size)]
    dist.all_gather(gathered, base)
    expected = sum(torch.arange(12.).view(3, 4).t() + 100 * other for other in range(size))
    assert torch.equal(reduced, expected)
    assert torch.equal(sent, (torch.arange(12.).view(3, 4) + 100).t())
    for other, tensor in enumerate(gathered):
        assert torch.equal(tensor, torch.arange(12.).view(3, 4) + 100 * other)


def uneven(rank, size):
    """Blocks of different sizes, some of them empty."""
    inputs = [torch.full((rank * other,), 10. * rank + other) for other in range(size)]
    outputs = [torch.zeros(rank * other) for other in range(size)]
    dist.all_to_all(outputs, inputs)
    for other, tensor in enumerate(outputs):
        assert torch.equal(tensor, torch.full((rank * other,), 10. * other + rank)), tensor
    splits = [rank + other for other in range(size)]
    output = torch.zeros(sum(splits), 2, dtype=torch.complex64)
    dist.all_to_all_single(output, torch.full_like(output, complex(rank, 1)), splits, splits)
    start_of = 0
    for other, rows in enumerate(splits):
        assert torch.all(output[start_of:start_of + rows] == complex(other, 1))
        start_of += rows
    gathered = [torch.zeros(other + 1) for other in range(size)]
    dist.all_gather(gathered, torch.full((rank + 1,), float(rank)))
    assert [tensor.tolist() for tensor in gathered] == [[float(other)] * (other + 1) for other in range(size)]
    blocks = [torch.full((other + 1,), float(rank + other)) for other in range(size)]
    reduced = torch.zeros(rank + 1)
    dist.reduce_scatter(reduced, blocks)
    assert reduced.tolist() == [float(sum(other + rank for other in range(size)))] * (rank + 1)


def disagreeing_splits(rank, size):
    try:
        dist.all_to_all_single(torch.zeros(size), torch.zeros(size), [1] * size,
                               [1] * size if rank != 0 else [0, 2] + [1] * (size - 2))
    except Exception as error:
        message = str(error)
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    return message, tensor.item()


def order(rank, size):
    """Collectives of one step and of several, issued without waiting, run in the order of the program."""
    works, results = [], []
    for step in range(20):
        if step % 4 == 1:
            output = torch.zeros(size)
            works.append(dist.all_to_all_single(output, torch.full((size,), float(step + rank)), async_op=True))
            results.append((output, torch.arange(size) + float(step)))
        else:
            tensor = torch.full((5,), float(step))
            works.append(dist.all_reduce(tensor, async_op=True))
            results.append((tensor, torch.full((5,), float(step * size))))
    for work in works:
        work.wait()
    for actual, expected in results:
        assert torch.equal(actual, expected), (actual, expected)


def any_source(rank, size):
    if rank != 0:
        dist.send(torch.full((1000,), float(rank)), 0, tag=3)
        return None
    sources = []
    for _ in range(size - 1):
        tensor = torch.zeros(1000)
        source = dist.recv(tensor, tag=3)
        assert torch.all(tensor == source)
        sources.append(source)
    return sorted(sources)


def callbacks_that_wait(rank, size):
    """As PowerSGD does: a callback of a future issues another collective and waits for it, for several at once."""
    def second(future):
        return dist.all_reduce(future.value()[0], async_op=True).get_future().wait()[0]

    futures = [dist.all_reduce(torch.full((3,), float(index)), async_op=True).get_future().then(second)
               for index in range(8)]
    return [future.wait().tolist() for future in futures]


def several_threads(rank, size):
    """A group for each thread, used at the same time; waiting threads must not hold the interpreter's lock."""
    groups = [dist.new_group(list(range(size))) for _ in range(4)]
    failures = []

    def work(number):
        for step in range(20):
            tensor = torch.full((100,), float(number + step))
            dist.all_reduce(tensor, group=groups[number])
            if tensor[0].item() != size * (number + step):
                failures.append((number, step))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(groups))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failures


def subgroups(rank, size):
    pair = dist.new_group([2, 0])
    tensor = torch.full((2,), float(rank))
    if rank != 1:
        dist.all_reduce(tensor, group=pair)
        dist.broadcast(tensor, 2, group=pair)
    return tensor[0].item()


def temporary_tensors(rank, size):
    """Tensors that Python has dropped before the operation is complete."""
    works = [dist.all_reduce(torch.ones(1000) * step, async_op=True) for step in range(50)]
    works += [dist.broadcast(torch.ones(10), 0, async_op=True) for _ in range(50)]
    for work in works:
        work.wait()
    del works
    return True


class Collectives(unittest.TestCase):
    def run_group(self, function):
        return run_ranks(RANKS, group(function))

    def test_reductions_of_every_type(self):
        for results in self.run_group(reductions):
            for (dtype, op), values in results.items():
                expected = {"SUM": [6, 6, 9], "PRODUCT": [6, 8, 0], "MIN": [1, 2, 0], "MAX": [3, 2, 6], "AVG": [2, 2, 3]}
                if dtype == "bool":
                    expected = {"SUM": [True, True, False], "MAX": [True, True, False],
                                "PRODUCT": [False, True, False], "MIN": [False, True, False]}
                self.assertEqual(values, expected[op], (dtype, op))

    def test_tensors_that_are_not_contiguous(self):
        self.run_group(strided)

    def test_blocks_of_different_sizes(self):
        self.run_group(uneven)

    def test_splits_that_disagree_are_an_error_on_all_ranks(self):
        for message, total in self.run_group(disagreeing_splits):
            self.assertIn("rank 0", message)
            self.assertIn("expects", message)
            self.assertEqual(total, RANKS)

    def test_operations_run_in_the_order_of_issue(self):
        self.run_group(order)

    def test_recv_from_any_rank_returns_the_source(self):
        self.assertEqual(self.run_group(any_source)[0], list(range(1, RANKS)))

    def test_callbacks_of_futures_may_wait_for_collectives(self):
        for results in self.run_group(callbacks_that_wait):
            self.assertEqual(results, [[index * RANKS ** 2] * 3 for index in range(8)])

    def test_threads_use_groups_at_the_same_time(self):
        self.assertEqual(self.run_group(several_threads), [[]] * RANKS)

    def test_subgroups(self):
        self.assertEqual(self.run_group(subgroups), [2, 1, 2])

    def test_tensors_may_be_dropped_while_in_flight(self):
        self.assertEqual(self.run_group(temporary_tensors), [True] * RANKS)


class Stores(unittest.TestCase):
    def in_tcp_store(self, size, part, before=lambda server: None):
        """part(rank, form) on each rank; form() forms a group in a store that outlives the ranks."""
        server = tcp_store(0, True)
        before(server)

        def whole(rank, size, path):
            store = tcp_store(server.port, False)
            return part(rank, lambda: extension.create(store, rank, size, datetime.timedelta(seconds=30), "again"))

        return run_ranks(size, whole)

    def test_ranks_meet_in_a_tcp_store(self):
        def part(rank, form):
            # Several times, among what the groups before have left in the store.
            return [extension.describe(form()) for _ in range(3)]

        for descriptions in self.in_tcp_store(RANKS, part):
            for description in descriptions:
                self.assertIn("3 ranks on 1 host", description)

    def test_ranks_with_different_secrets_do_not_form_a_group(self):
        def part(rank, form):
            os.environ["LOCKSTEP_SECRET"] = f"the secret of rank {rank}, and of no other"
            try:
                form()
            except Exception as error:
                return str(error)

        for message in self.in_tcp_store(2, part):
            self.assertIn("secret", message)

    def test_threads_meet_in_a_hash_store(self):
        store, values = dist.HashStore(), [None, None]

        def part(rank):
            backend = extension.create(store, rank, 2, datetime.timedelta(seconds=30), "threads")
            values[rank] = extension.describe(backend)

        threads = [threading.Thread(target=part, args=(rank,)) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for value in values:
            self.assertIn("2 ranks on 1 host", value)

    def test_a_writer_that_died_does_not_stop_the_others(self):
        def part(rank, form):
            return extension.describe(form())

        def dies_first(server):
            server.add("lockstep/log", 1)  # it took the first entry's number, and never wrote the entry

        for description in self.in_tcp_store(2, part, before=dies_first):
            self.assertIn("2 ranks on 1 host", description)

    def test_a_world_of_one_rank_needs_no_peer(self):
        def part(rank, size, path):
            start(rank, size, path)
            tensor = torch.ones(2)
            dist.all_reduce(tensor)
            outputs = [torch.zeros(2)]
            dist.all_to_all(outputs, [tensor])
            dist.destroy_process_group()
            return outputs[0].tolist()

        self.assertEqual(run_ranks(1, part), [[1, 1]])


if __name__ == "__main__":
    sys.exit(unittest.main())
