"""What makes two runs the same run, and what a reader must know of the place where one was made."""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import json
import os
import platform
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from types import CodeType
from typing import Any

import psutil
import torch

from recbole_prism import __version__
from recbole_prism.run_files import plain

# Every result depends on these; a change in the command line, in serving or in a plot does not make another run. Of the
# room `model` only what the run's own model imports counts: another model's file does not make another run either.
SHARED = ("_compat.py", "data", "evaluation", "trainer")
PACKAGES = ("recbole", "numpy", "pandas", "scipy", "safetensors")


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


def code_version(module: str | None = None, extra: bytes = b"") -> str:
    """SHA-256 (hex) of the sources that a result depends on, whatever their line ends and their place on the disk.

    Args:
        module: Where the model's class is. One outside this package (RecBole's) adds nothing of the room `model`; None
            takes the whole room, for a class from outside whose imports are not looked at.
        extra: Source outside the package, e.g. `class_source` of a user's own model.
    """
    return hashlib.sha256(_package_version(module).encode("ascii") + extra.replace(b"\r\n", b"\n")).hexdigest()


@functools.cache
def _package_version(module: str | None) -> str:
    """SHA-256 (hex) of this package's share."""
    return digest_of(Path(__file__).parent, module)


def digest_of(package: Path, module: str | None) -> str:
    """SHA-256 (hex) of the names and contents of `sources_of`."""
    digest = hashlib.sha256()
    for name in sources_of(package, module):
        source = (package / name).read_bytes().replace(b"\r\n", b"\n")
        digest.update(f"{name}\n{len(source)}\n".encode())
        digest.update(source)
    return digest.hexdigest()


def sources_of(package: Path, module: str | None) -> list[str]:
    """Files of the package that a result of a model depends on: the shared rooms, and what they and the model's module
    import of the room `model`, directly or through one another.

    Imports are read, not run: inside functions and for type checking too, but none that is made from a text.

    Args:
        package: Folder of the package.
        module: See `code_version`.

    Returns:
        Sorted paths below the folder, with "/".
    """
    found = {
        file.relative_to(package).as_posix()
        for room in (SHARED if module is not None else (*SHARED, "model"))
        for file in ([package / room] if room.endswith(".py") else (package / room).rglob("*.py"))
    }
    waiting = sorted(found)
    if module is not None:
        waiting += _files_of(package, module)
    while waiting:
        name = waiting.pop()
        found.add(name)
        imported = {file for target in _imports(package, name) for file in _files_of(package, target)}
        waiting += sorted(imported - found)
    return sorted(found)


def _imports(package: Path, name: str) -> list[str]:
    """Full names that a file imports; whether the last part is a module or something in one is not known."""
    parts = [package.name, *Path(name).with_suffix("").parts]
    targets: list[str] = []
    for node in ast.walk(ast.parse((package / name).read_bytes())):
        if isinstance(node, ast.Import):
            targets += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = [*parts[: len(parts) - node.level]] if node.level else []
            base = ".".join([*start, node.module] if node.module else start)
            targets += [f"{base}.{alias.name}" for alias in node.names]
    return targets


def _files_of(package: Path, target: str) -> list[str]:
    """The files of the room `model` that the import of a name runs: its module and the packages around it."""
    parts = target.split(".")
    if parts[:2] != [package.name, "model"]:
        return []
    candidates = [file for n in range(2, len(parts) + 1) for file in _module_files(parts[1:n])]
    return [file for file in candidates if (package / file).is_file()]


def _module_files(parts: Sequence[str]) -> tuple[str, str]:
    return "/".join(parts) + ".py", "/".join(parts) + "/__init__.py"


def class_source(model_class: type) -> bytes:
    """What stands for the code of a class: the file it is in.

    A class typed into a notebook, a prompt or `python -c` has none: its settings and its compiled methods stand for it,
    and those of its bases from the same session. Functions beside the class are then not looked at, and another Python
    version compiles otherwise.
    """
    try:
        file = inspect.getsourcefile(model_class)
    except (OSError, TypeError):  # a session without a file, by Python version
        file = None
    if file is not None and Path(file).is_file():
        return Path(file).read_bytes()
    session = [base for base in model_class.__mro__ if base.__module__ == model_class.__module__]
    parts = [repr(getattr(model_class, "config_defaults", None))]
    for base in session:
        parts.append(base.__qualname__)
        for name, member in sorted(vars(base).items()):
            function = getattr(member, "fget", None) or getattr(member, "__func__", member)  # property, classmethod
            if inspect.isfunction(function):
                parts += [name, repr((function.__defaults__, function.__kwdefaults__)), _compiled(function.__code__)]
    return "\n".join(parts).encode("utf-8")


def _compiled(code: CodeType) -> str:
    """Instructions, names and constants, without the addresses and line numbers that differ between two sessions."""
    constants = [
        _compiled(value)
        if isinstance(value, CodeType)
        else repr(sorted(map(repr, value)) if isinstance(value, frozenset) else value)  # `in {...}`: order by hash seed
        for value in code.co_consts
    ]
    return repr((code.co_code.hex(), code.co_names, code.co_varnames, constants))


def _cpu_name() -> str:
    """The processor as the system names it; on Linux `platform` does not know it."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def describe_device(device: torch.device) -> str:
    """Where a run computes, for its log: "cuda:0 (<card>, 130.1 of 150.0 GB free)"; on a CPU its available memory."""
    if device.type != "cuda":
        return f"{device} ({_cpu_name()}, {psutil.virtual_memory().available / 1e9:.1f} GB available)"
    free, total = torch.cuda.mem_get_info(device)
    return f"{device} ({torch.cuda.get_device_name(device)}, {free / 1e9:.1f} of {total / 1e9:.1f} GB free)"


def environment_report(device: torch.device | str, packages: Sequence[str] = PACKAGES) -> dict[str, Any]:
    """Versions, device and threads of this process; neither paths nor the host's name.

    Args:
        device: Where the model is.
        packages: Distributions whose versions are told (None for one that is not installed).
    """
    device = torch.device(device)
    versions: dict[str, Any] = {"python": platform.python_version()}
    versions["recbole-prism"] = __version__  # metadata would be missing or stale in a checkout
    versions["torch"] = torch.__version__  # with its build ("+cpu", "+cu130"), which metadata may leave out
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
