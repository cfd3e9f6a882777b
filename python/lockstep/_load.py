"""Loads the extension module, or explains in one sentence why that is impossible."""
import importlib
from types import ModuleType
from typing import TYPE_CHECKING

import torch

__all__ = ["extension"]


def _series(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _built_for() -> str:
    """The PyTorch that the extension was built with; empty if that is unknown."""
    try:
        return str(importlib.import_module("lockstep._build").torch_version)
    except ImportError:
        return ""


def _load() -> ModuleType:
    built_for = _built_for()
    if built_for and _series(built_for) != _series(torch.__version__):
        raise ImportError(
            f"lockstep was built for PyTorch {built_for}, but this Python has PyTorch {torch.__version__}: "
            "build it again with this one (pip install --force-reinstall --no-build-isolation .)")
    try:
        return importlib.import_module("lockstep._lockstep")
    except ImportError as error:
        if "undefined symbol" not in str(error):
            raise
        raise ImportError(
            f"lockstep was not built for this PyTorch, {torch.__version__}: build it again with this one "
            f"(pip install --force-reinstall --no-build-isolation .). The loader's reason: {error}") from None


if TYPE_CHECKING:
    import lockstep._lockstep as extension
else:
    extension = _load()
