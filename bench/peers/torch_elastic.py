"""torchrun, also where Debian 12's stops at its start.

torch_elastic.py TORCHRUN-OPTIONS SCRIPT ARGUMENTS
torch 1.13 looks up "--redirects 0" in a way that fails under Python 3.11, where Std.from_str returns None.
"""
import os
import sys

from torch.distributed.elastic.multiprocessing import Std
from torch.distributed.run import main

if Std.from_str("0") is None:
    Std.from_str = classmethod(lambda cls, text: Std.NONE)

# Since 2.4 PyTorch's store asks for libuv, and Debian builds PyTorch without it.
os.environ.setdefault("USE_LIBUV", "0")
main(sys.argv[1:])
