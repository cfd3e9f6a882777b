"""Imported for its side effect: makes PyTorch create stores that Debian's build supports.

Since 2.4 PyTorch's stores ask for libuv, which Debian's PyTorch is built without; USE_LIBUV=0 does not reach all of them.
"""
import sys

import torch
import torch.distributed as dist

if tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 4):
    class TcpStoreWithoutLibuv(dist.TCPStore):
        def __init__(self, *arguments, **named):
            named["use_libuv"] = False
            super().__init__(*arguments, **named)

    dist.TCPStore = TcpStoreWithoutLibuv
    # torch.distributed has a function of the same name.
    sys.modules["torch.distributed.rendezvous"].TCPStore = TcpStoreWithoutLibuv
