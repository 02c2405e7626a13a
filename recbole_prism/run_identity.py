"""What makes two runs the same run, and what a reader must know of the place where one was made."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from recbole_prism import __version__
from recbole_prism.run_files import plain

# The rooms a result depends on; a change in the command line, in serving or in a plot does not make another run.
ROOMS = ("_compat.py", "data", "model", "evaluation", "trainer")
PACKAGES = ("recbole", "torch", "numpy", "pandas", "scipy", "safetensors")


def compute_identity(values: Mapping[str, Any], fingerprint: str, code_version: str) -> str:
    """The part of a run directory's name that stands for settings, data and code.

    Args:
        values: Resolved settings without those of the machine (`Config.identity_values()`), in any order.
        fingerprint: Of the data set.
        code_version: See `code_version`.

    Returns:
        12 hexadecimal digits.
    """
    text = json.dumps([plain(values), fingerprint, code_version], sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:12]


@functools.cache
def code_version(extra_files: tuple[Path, ...] = ()) -> str:
    """SHA-256 (hex) of the sources that a result depends on, whatever their line ends and their place on the disk.

    Args:
        extra_files: Sources outside the package, e.g. the module of a user's own model.
    """
    package = Path(__file__).parent
    inside = sorted(
        (file.relative_to(package).as_posix(), file)
        for room in ROOMS
        for file in ([package / room] if room.endswith(".py") else (package / room).rglob("*.py"))
    )
    digest = hashlib.sha256()
    for name, file in [*inside, *((file.name, file) for file in extra_files)]:
        source = file.read_bytes().replace(b"\r\n", b"\n")
        digest.update(f"{name}\n{len(source)}\n".encode())
        digest.update(source)
    return digest.hexdigest()


def _cpu_name() -> str:
    """The processor as the system names it; on Linux `platform` does not know it."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def environment_report(device: torch.device | str, packages: Sequence[str] = PACKAGES) -> dict[str, Any]:
    """Versions, device and threads of this process; neither paths nor the host's name.

    Args:
        device: Where the model is.
        packages: Distributions whose versions are told (None for one that is not installed).
    """
    device = torch.device(device)
    versions: dict[str, Any] = {"python": platform.python_version()}
    versions["recbole-prism"] = __version__  # metadata would be missing or stale in a checkout
    for package in packages:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = None
    is_cuda = device.type == "cuda"
    return {
        "versions": versions,
        "system": f"{platform.system()} {platform.machine()}",
        "device": str(device),
        "device_name": torch.cuda.get_device_name(device) if is_cuda else _cpu_name(),
        "device_memory_gb": torch.cuda.get_device_properties(device).total_memory / 1e9 if is_cuda else None,
        "threads": torch.get_num_threads(),
        "cpu_cores": os.cpu_count(),
    }
