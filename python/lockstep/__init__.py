"""Backend "lockstep" for torch.distributed: DDP on CPUs over shared memory, with errors that name the lost rank.

    import lockstep
    import torch.distributed as dist

    dist.init_process_group("lockstep")

Everything else is torch.distributed as before: DistributedDataParallel, its hooks, ZeroRedundancyOptimizer, new_group(),
send and recv. Start the ranks with `lockstep run train.py`, torchrun, srun or mpirun. docs/python.md has the details.
"""
import os as _os
from typing import Any as _Any
from typing import Dict as _Dict

import torch as _torch
import torch.distributed as _dist

from lockstep._load import extension as _extension
from lockstep._groups import abort, algorithm_table, describe, describe_rank, health, monitored_barrier

__version__: str = _extension.version

__all__ = ["abort", "algorithm_table", "describe", "describe_rank", "health", "monitored_barrier",
           "register", "__version__"]


def _create(options: _Any, _backend_options: _Any = None) -> "_extension.Backend":
    """Called by init_process_group() and new_group(), on every rank of the group."""
    ranks = options.global_ranks_in_group
    name = f"world {options.group_id}" if not ranks else "group {} of ranks {}".format(
        options.group_id, ", ".join(str(rank) for rank in ranks))
    return _extension.create(options.store, options.group_rank, options.group_size, options.timeout, name)


def register() -> None:
    """Registers backend "lockstep" with torch.distributed, once. The import of this package does so."""
    if hasattr(_dist.Backend, "LOCKSTEP"):
        return
    arguments: _Dict[str, _Any] = {"extended_api": True}
    if int(_torch.__version__.split(".")[0]) >= 2:
        arguments["devices"] = ["cpu"]
    _dist.Backend.register_backend("lockstep", _create, **arguments)


if _dist.is_available():
    # srun and mpirun have variables of their own; torch.distributed reads these.
    _os.environ.update(_extension.scheduler_environment())
    register()
