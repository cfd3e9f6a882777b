"""Functions on groups that torch.distributed lacks. `group` is what new_group() returned; None: the default group."""
import datetime
from typing import Optional

import torch
import torch.distributed as dist

from lockstep._load import extension


def _or_default(group: Optional[dist.ProcessGroup]) -> dist.ProcessGroup:
    return group if group is not None else dist.distributed_c10d._get_default_group()


def _backend(group: Optional[dist.ProcessGroup]) -> "extension.Backend":
    group = _or_default(group)
    # On 2.x a group has a backend for each device.
    return group._get_backend(torch.device("cpu")) if hasattr(group, "_get_backend") else group


def abort(reason: str, group: Optional[dist.ProcessGroup] = None) -> None:
    """Ends the group on every rank: pending and later operations raise an error with this reason."""
    extension.abort(_backend(group), reason)


def describe(group: Optional[dist.ProcessGroup] = None) -> str:
    """The hosts and the ranks on each, human-readable."""
    return extension.describe(_backend(group))


def describe_rank(rank: int, group: Optional[dist.ProcessGroup] = None) -> str:
    """For messages: "rank 2 (host node7, pid 4711)". `rank` counts within the group."""
    return extension.describe_rank(_backend(group), rank)


def algorithm_table(group: Optional[dist.ProcessGroup] = None) -> str:
    """Which algorithm runs at which size."""
    return extension.algorithm_table(_backend(group))


def health(group: Optional[dist.ProcessGroup] = None) -> str:
    """"ok" until the group fails, then the error."""
    return extension.health(_backend(group))


def monitored_barrier(group: Optional[dist.ProcessGroup] = None, timeout: Optional[datetime.timedelta] = None,
                      wait_all_ranks: bool = False) -> None:
    """A barrier in which rank 0 reports the ranks that did not reach it: the first, or with wait_all_ranks all of them.

    torch.distributed.monitored_barrier, which accepts Gloo's groups only. The group is usable after a failure.
    """
    if dist.distributed_c10d._rank_not_in_group(group):
        return
    timeout = timeout if timeout is not None else datetime.timedelta(minutes=30)
    _or_default(group).monitored_barrier(timeout, wait_all_ranks=wait_all_ranks)
