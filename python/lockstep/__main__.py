"""python3 -m lockstep --info: versions, and what this build can do."""
import argparse
import platform
import sys

import torch
import torch.distributed as dist

import lockstep
from lockstep._load import extension


def _info() -> str:
    base = "c10d::ProcessGroup" if torch.__version__.startswith("1.") else "c10d::Backend"
    registered = hasattr(dist.Backend, "LOCKSTEP")
    lines = [
        ("lockstep", f"{lockstep.__version__}, {extension.__file__}"),
        ("built for PyTorch", extension.torch_version),
        ("PyTorch", f"{torch.__version__}, {torch.__file__}"),
        ("Python", f"{platform.python_version()}, {sys.executable}"),
        ("backend", f'"lockstep" is registered ({base})' if registered else "this PyTorch has no torch.distributed"),
    ]
    return "\n".join(f"{name + ':':20}{value}" for name, value in lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python3 -m lockstep", description="Backend \"lockstep\" of torch.distributed.")
    parser.add_argument("--info", action="store_true", help="print versions, and what this build can do")
    parser.add_argument("--version", action="version", version=f"lockstep {lockstep.__version__}")
    arguments = parser.parse_args()
    if not arguments.info:
        parser.print_help()
        return 2
    print(_info())
    return 0


if __name__ == "__main__":
    sys.exit(main())
