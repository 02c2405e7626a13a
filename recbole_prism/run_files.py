"""The file kinds of a run directory: each written atomically, none of them pickled.

A file appears under its name only when it is complete: it is written beside its place, flushed to the disk and renamed.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from recbole_prism.errors import RunDirectoryError

DAMAGED_CURE = "restore it from a copy, or --overwrite trains it again"
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Say what to do where the system refuses to write `path`.

    Raises:
        RunDirectoryError: In place of an OSError.
    """
    try:
        yield
    except OSError as error:
        cure = "make room" if error.errno in _NO_ROOM else "choose a writable --checkpoint_dir, or free the place"
        raise RunDirectoryError(
            f"{path} cannot be written: {error.strerror or error}", f"{cure}; the same command goes on"
        ) from error


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Give a temporary path in the same folder; the file written there replaces `path` if nothing was raised.

    Raises:
        RunDirectoryError: The disk is full, or the system refuses otherwise.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with writing(path):
            yield temporary
            with open(temporary, "rb+") as file:
                os.fsync(file.fileno())
            os.replace(temporary, path)
            _sync_folder(path.parent)
    finally:
        with suppress(OSError):  # the error above is the one to be seen
            temporary.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Make a rename survive a power failure, where the system can."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def plain(value: Any, place: str = "") -> Any:
    """A copy in JSON's types: NumPy scalars become numbers, tuples lists, NaN and infinity None (JSON has neither).

    Raises:
        RunDirectoryError: For a value of another type, naming its place.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(entry, f"{place}.{key}") for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry, f"{place}[{number}]") for number, entry in enumerate(value)]
    raise RunDirectoryError(
        f"{place.lstrip('.') or 'value'} is of type {type(value).__name__}, which is no plain value",
        "store numbers, texts, lists and dictionaries",
    )


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 text file, line ends as given."""
    with atomic_file(path) as temporary:
        temporary.write_bytes(text.encode("utf-8"))


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file; see `plain` for what may be in it."""
    write_text(path, json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        RunDirectoryError: If it is missing or damaged.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunDirectoryError(f"{path} cannot be read: {error}", DAMAGED_CURE) from error


def write_yaml(path: Path, value: Mapping[str, Any]) -> None:
    """Write a YAML file of plain values, keys in the given order."""
    write_text(path, yaml.safe_dump(plain(value), sort_keys=False, allow_unicode=True, width=120))


def read_yaml(path: Path) -> Any:
    """Read a YAML file written by `write_yaml`."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def write_json_lines(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    """Write one JSON object per line."""
    write_text(
        path, "".join(json.dumps(plain(record), ensure_ascii=False, allow_nan=False) + "\n" for record in records)
    )


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """Read a file of one JSON object per line.

    Raises:
        RunDirectoryError: If it is missing or damaged.
    """
    try:
        records = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
    except (OSError, ValueError) as error:
        raise RunDirectoryError(f"{path} cannot be read: {error}", DAMAGED_CURE) from error
    if not all(isinstance(record, dict) for record in records):
        raise RunDirectoryError(f"{path} is damaged: a line is no object", DAMAGED_CURE)
    return records


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray], compressed: bool = False) -> None:
    """Write an .npz file.

    Args:
        path: Where.
        arrays: By name.
        compressed: Smaller and slower.

    Raises:
        RunDirectoryError: For an array of Python objects (NumPy would pickle it).
    """
    objects = [name for name, array in arrays.items() if np.asarray(array).dtype.hasobject]
    if objects:
        raise RunDirectoryError(f"{path.name}: {', '.join(objects)} hold Python objects", "store numbers only")
    archive = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(
        archive, **arrays
    )  # straight into a file, a full disk would leave a ZipFile that complains when collected
    with atomic_file(path) as temporary:
        temporary.write_bytes(archive.getbuffer())


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read all arrays of an .npz file."""
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write a .safetensors file.

    Tensors are moved to the CPU; those that share memory (tied weights) are stored once per name.
    """
    stored: dict[str, Tensor] = {}
    taken: set[int] = set()
    for name, tensor in tensors.items():
        tensor = tensor.detach().to("cpu").contiguous()
        if tensor.untyped_storage().data_ptr() in taken or tensor.untyped_storage().nbytes() != tensor.nbytes:
            tensor = tensor.clone()
        taken.add(tensor.untyped_storage().data_ptr())
        stored[name] = tensor
    with atomic_file(path) as temporary:
        temporary.write_bytes(save(stored, metadata=dict(metadata or {})))  # save_file would make it private (0600)


def read_tensors(path: Path, device: torch.device | str = "cpu") -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read a .safetensors file: (tensors by name, metadata)."""
    with safe_open(str(path), framework="pt", device=str(device)) as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}


def file_hash(path: Path) -> str:
    """SHA-256 (hex) of a file's bytes."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()
