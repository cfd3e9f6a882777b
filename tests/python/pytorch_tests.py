"""Runs PyTorch's own tests of a distributed backend with backend "lockstep".

pytorch_tests.py [--world-size 3] [--quick | --rest] [--list] [--json FILE] [--match REGEX] [test names...]

The tests are those of torch/testing/_internal/distributed/distributed_test.py, which is installed with PyTorch. PyTorch
limits some of them to Gloo or MPI by name; the ones that make sense for any CPU backend are enabled by changing the
names in the file's text, in memory (ENABLED). Each rank of a test is a forked process, so that PyTorch is imported once.
Prints a line for each test and a summary; the exit code is 0 if no test failed.
"""
import argparse
import importlib.util
import json
import os
import re
import sys
import time
import types
import unittest

MODULE = "torch.testing._internal.distributed.distributed_test"

# Conditions of PyTorch's file, and what they are for "lockstep".
ENABLED = [
    (r'require_backend\(\{"gloo"\}\)', 'require_backend({"gloo", "lockstep"})'),
    # Of PyTorch's "gpu" backends, many tests need no GPU; those that do are skipped by another condition.
    (r'@require_backend(s_available)?\(DistTestCases.backend_feature\["gpu"\]\)', '@require_world_size(1)'),
    (r'BACKEND != "gloo", "Only gloo backend supports timeouts"', 'False, ""'),
    (r'BACKEND != "gloo", "Only Gloo backend support sparse all reduce"', 'False, ""'),
    (r'BACKEND != "gloo", "GLOO Batch Send Recv CPU"', 'False, ""'),
    (r'BACKEND != "mpi", "Only MPI supports (CPU )?all_to_all(_single)?"', 'False, ""'),
    (r'BACKEND != "mpi" and BACKEND != "nccl" and BACKEND != "gloo"', 'False'),
    (r'BACKEND != "gloo" and BACKEND != "nccl"', 'False'),
    (r'BACKEND != "nccl" and BACKEND != "gloo"', 'False'),
    (r'if BACKEND == "mpi" or BACKEND == "gloo":', 'if BACKEND in ("mpi", "gloo", "lockstep"):'),
]
# The quick part: every operation and the most important options of DDP once, on the group of all ranks.
SLOW = re.compile("group|timeout|monitored|profiler|hierarchical|averag|barrier|hook|logging|sync_batch|SyncBatch|coalesced_m"
                  "|coalesced_p|_complex|enumeration|uneven|periodic|autograd|nested|undefined|debug")
# Expected messages that are Gloo's.
WORDING = [(r'" \(Timed out\|closed\|timeout\) "', '"timed_out: barrier .* did not reach this operation"')]
# What fails with any backend: 1.13's ReplicatedTensor cannot be imported under Python 3.11.
REPAIRED = [(r'_set_ddp_with_replicated_tensor\(True\)', '_set_ddp_with_replicated_tensor(False)')]


def load(world_size):
    """PyTorch's test module, with "lockstep" among its backends."""
    os.environ.update(BACKEND="lockstep", WORLD_SIZE=str(world_size))
    try:
        import expecttest  # noqa: F401
    except ImportError:
        sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "stand_in"))
    import lockstep
    import torch.distributed as dist
    from torch.testing._internal.common_distributed import DistTestCases

    for feature in ("ddp", "subgroup", "plugin"):
        DistTestCases.backend_feature[feature].add("lockstep")
    dist.monitored_barrier = lockstep.monitored_barrier  # PyTorch's accepts Gloo only

    spec = importlib.util.find_spec(MODULE)
    with open(spec.origin) as file:
        text = file.read()
    for pattern, replacement in ENABLED + WORDING + REPAIRED:
        text = re.sub(pattern, replacement, text)
    module = types.ModuleType(MODULE)
    module.__file__ = spec.origin
    sys.modules[MODULE] = module
    exec(compile(text, spec.origin, "exec"), module.__dict__)
    for backends in ("PROFILING_SUPPORTED_BACKENDS", "SEND_RECV_PROFILING_SUPPORTED_BACKENDS"):
        getattr(module, backends).append("lockstep")
    return module


def make_case(module):
    import torch.multiprocessing

    class PyTorchTest(module.TestDistBackend, module.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    return PyTorchTest


class Results(unittest.TestResult):
    def __init__(self):
        super().__init__()
        self.outcomes = {}
        self.started = 0.0

    def startTest(self, test):
        super().startTest(test)
        self.started = time.monotonic()

    def record(self, test, outcome, reason=""):
        seconds = time.monotonic() - self.started
        name = test.id().split(".")[-1]
        self.outcomes[name] = {"outcome": outcome, "reason": reason, "seconds": round(seconds, 2)}
        print(f"{outcome:8} {seconds:6.1f} s  {name}" + (f"  ({reason})" if outcome == "skipped" else ""), flush=True)

    def addSuccess(self, test):
        self.record(test, "passed")

    def addSkip(self, test, reason):
        self.record(test, "skipped", reason)

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.record(test, "failed", str(error[1]))
        print(self.failures[-1][1], flush=True)

    def addError(self, test, error):
        super().addError(test, error)
        self.record(test, "failed", str(error[1]))
        print(self.errors[-1][1], flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--world-size", type=int, default=3)
    part = parser.add_mutually_exclusive_group()
    part.add_argument("--quick", action="store_true", help="only the quick part")
    part.add_argument("--rest", action="store_true", help="all but the quick part")
    parser.add_argument("--list", action="store_true", help="print the names of the tests")
    parser.add_argument("--json", help="write the outcomes to this file")
    parser.add_argument("--match", default="", help="only tests whose name contains this regular expression")
    parser.add_argument("names", nargs="*", help="only these tests")
    arguments = parser.parse_args()

    case = make_case(load(arguments.world_size))
    names = [name for name in unittest.defaultTestLoader.getTestCaseNames(case)
             if re.search(arguments.match, name) and (not arguments.names or name in arguments.names)]
    if arguments.quick or arguments.rest:
        names = [name for name in names if bool(SLOW.search(name)) == arguments.rest]
    unknown = set(arguments.names) - set(names)
    if unknown:
        sys.exit("unknown tests: " + ", ".join(sorted(unknown)))
    if arguments.list:
        print("\n".join(names))
        return 0
    results = Results()
    unittest.TestSuite(case(name) for name in names).run(results)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(results.outcomes, file, indent=1, sort_keys=True)
    counts = {outcome: sum(1 for one in results.outcomes.values() if one["outcome"] == outcome)
              for outcome in ("passed", "failed", "skipped")}
    print("{passed} passed, {failed} failed, {skipped} skipped".format(**counts))
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
