"""Imported for its effect: stores of PyTorch that Debian's can make.

Since 2.4 PyTorch's stores ask for libuv, which Debian's PyTorch is built without; USE_LIBUV=0 does not reach all of them.
"""
import torch
import torch.distributed as dist
from torch.distributed import rendezvous

if tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 4):
    class TcpStoreWithoutLibuv(dist.TCPStore):
        def __init__(self, *arguments, **named):
            named["use_libuv"] = False
            super().__init__(*arguments, **named)

    dist.TCPStore = rendezvous.TCPStore = TcpStoreWithoutLibuv
