"""The verb `doctor`: what is installed, what it runs on, and what is missing for which feature."""

from __future__ import annotations

import argparse
import os
import platform
from importlib import metadata, util
from typing import Sequence

import torch

from recbole_prism import __version__

# extra of setup.py -> (what it is for, the modules that must be there)
EXTRAS = {
    "tune": ("search for settings", ("ray", "optuna")),
    "faiss": ("kmeans_backend: faiss", ("faiss",)),
    "plots": ("figures", ("matplotlib",)),
    "export": ("serving formats, in a later version", ("onnx", "onnxscript", "onnxruntime")),
    "test": ("tests and checks", ("pytest", "pytest_timeout", "ruff", "mypy")),
}
_PACKAGES = ("recbole", "torch", "numpy", "pandas", "scipy", "safetensors", "PyYAML")


def doctor_command(argv: Sequence[str]) -> int:
    """Print the report; `recbole-prism doctor` takes no options."""
    argparse.ArgumentParser(prog="recbole-prism doctor", description=__doc__).parse_args(list(argv))
    print("\n".join(report()))
    return 0


def report() -> list[str]:
    """Lines about versions, devices, threads and extras."""
    lines = [f"recbole-prism {__version__}", f"Python {platform.python_version()} on {platform.platform()}"]
    lines += [f"{package} {_version(package)}" for package in _PACKAGES]
    lines += ["", *_devices(), _threads(), ""]
    for extra, (feature, modules) in EXTRAS.items():
        missing = [module for module in modules if util.find_spec(module) is None]
        if missing:
            lines.append(f"{feature}: missing {', '.join(missing)}  ->  in the checkout: pip install '.[{extra}]'")
        else:
            lines.append(f"{feature}: ready")
    return lines


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "is missing"


def _devices() -> list[str]:
    if not torch.cuda.is_available():
        return ["device: cpu (torch sees no CUDA device)"]
    lines = []
    for index in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(index)
        lines.append(
            f"device: cuda:{index} {torch.cuda.get_device_name(index)}, {free / 1e9:.1f} of {total / 1e9:.1f} GB free"
        )
    return lines


def _threads() -> str:
    setting = os.environ.get("OMP_NUM_THREADS")
    source = f"OMP_NUM_THREADS={setting}" if setting else "torch's choice"
    return f"threads: {torch.get_num_threads()} ({source}) of {os.cpu_count()} cores; on a shared machine set n_threads"
