"""Writes docs/python_tests.md from the outcomes of pytorch_tests.py --json.

table.py OUTCOMES.json VERSION > docs/python_tests.md
"""
import collections
import json
import sys

HEADER = """# PyTorch's own tests

`tests/python/pytorch_tests.py` runs torch/testing/_internal/distributed/distributed_test.py, which is installed with
PyTorch, with backend "lockstep". These are the outcomes with PyTorch {version} and 3 ranks on one host: **{passed} of {total} passed,
{failed} failed, {skipped} were skipped.** `ctest -L python` runs them; `./test.sh` the quick part, `tools/check` the others.

Tests that PyTorch limits to Gloo or MPI by name, but that any CPU backend can pass, are enabled: sparse all_reduce,
all_to_all, monitored_barrier, time-outs, batched messages, and those of the feature "gpu" that need no GPU. Two expectations
are adapted, both listed at the top of the driver: the wording of Gloo's time-out, and 1.13's ReplicatedTensor, which cannot be
imported under Python 3.11 with any backend.

| reason for being skipped | tests |
|---|---|
"""


def main():
    with open(sys.argv[1]) as file:
        outcomes = json.load(file)
    counts = collections.Counter(one["outcome"] for one in outcomes.values())
    reasons = collections.Counter(one["reason"] for one in outcomes.values() if one["outcome"] == "skipped")
    print(HEADER.format(version=sys.argv[2], total=len(outcomes), passed=counts["passed"], failed=counts["failed"],
                        skipped=counts["skipped"]), end="")
    for reason, count in reasons.most_common():
        print(f"| {reason} | {count} |")
    print("\n## Every test\n\n| test | outcome |\n|---|---|")
    for name, one in sorted(outcomes.items()):
        print(f"| `{name}` | {one['outcome'] if one['outcome'] != 'skipped' else one['reason']} |")


if __name__ == "__main__":
    main()
