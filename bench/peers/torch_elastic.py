"""torchrun, with a fix for Debian 12, where it fails to start.

torch_elastic.py TORCHRUN-OPTIONS SCRIPT ARGUMENTS
torch 1.13 looks up "--redirects 0" in a way that fails under Python 3.11, where Std.from_str returns None.
"""
import sys

import torch_store  # noqa: F401, before anything that creates stores
from torch.distributed.elastic.multiprocessing import Std
from torch.distributed.run import main

if Std.from_str("0") is None:
    Std.from_str = classmethod(lambda cls, text: Std.NONE)

main(sys.argv[1:])
