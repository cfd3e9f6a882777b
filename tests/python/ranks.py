"""Ranks as forked processes, for tests of the Python package. PyTorch is imported once, before the fork."""
import os
import tempfile
import traceback

import torch.distributed
import torch.multiprocessing

os.environ.setdefault("OMP_NUM_THREADS", "1")


def tcp_store(port, is_server):
    """A TCPStore on this host. Debian's PyTorch is built without libuv, which is the default since 2.4."""
    options = {} if torch.__version__.startswith("1.") else {"use_libuv": False}
    return torch.distributed.TCPStore("127.0.0.1", port, None, is_server, **options)


def _rank(function, rank, size, folder, results):
    try:
        results.put((rank, function(rank, size, os.path.join(folder, "store")), None))
    except BaseException:  # also SystemExit: the test must learn of it
        results.put((rank, None, traceback.format_exc()))


def run_ranks(size, function, expect=None):
    """Calls function(rank, size, path) on `size` processes; returns their results by rank.

    `path` is where a FileStore of the ranks can be. `expect` are the ranks that return; others are killed by the test.
    A rank that raises an exception fails the test with its traceback.
    """
    expect = set(range(size)) if expect is None else set(expect)
    context = torch.multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    with tempfile.TemporaryDirectory(prefix="lockstep-python-") as folder:
        processes = [context.Process(target=_rank, args=(function, rank, size, folder, results)) for rank in range(size)]
        for process in processes:
            process.start()
        values = {}
        while set(values) != expect:
            rank, value, error = results.get()
            if error is not None:
                for process in processes:
                    process.kill()
                raise AssertionError(f"rank {rank} failed:\n{error}")
            values[rank] = value
        for process in processes:
            process.join()
    return [values.get(rank) for rank in range(size)]
