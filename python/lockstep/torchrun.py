"""python3 -m lockstep.torchrun: torchrun, also where PyTorch's own does not start.

- PyTorch 1.13 under Python 3.11 (Debian 12): "--redirects 0" is looked up in a way that fails there.
- PyTorch 2 that was built without libuv (Debian 13 and later): torchrun's store asks for libuv, whatever USE_LIBUV says.
"""
import sys
from typing import Any

import torch.distributed as dist
from torch.distributed.elastic.multiprocessing import Std
from torch.distributed.elastic.rendezvous import c10d_rendezvous_backend
from torch.distributed.run import main

if Std.from_str("0") is None:
    Std.from_str = classmethod(lambda cls, text: Std.NONE)


def has_libuv() -> bool:
    """Whether this PyTorch's TCPStore can use libuv, or is older than it."""
    try:
        dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, use_libuv=True)
    except TypeError:  # before libuv
        return True
    except RuntimeError:
        return False
    return True


if not has_libuv():

    class StoreWithoutLibuv(dist.TCPStore):  # type: ignore[misc]
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **{"use_libuv": False, **options})

    c10d_rendezvous_backend.TCPStore = dist.TCPStore = StoreWithoutLibuv

if __name__ == "__main__":
    main(sys.argv[1:])
