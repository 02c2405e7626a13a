"""Writing without half-written results: a staging folder in the target, checksums, file errors in plain words."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator

import psutil

from recbole_prism.errors import DataError

_STAGING_PREFIX = ".prepare-"
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NO_PERMISSION = {errno.EACCES, errno.EPERM, errno.EROFS}


@contextmanager
def writing_errors(target: Path) -> Iterator[None]:
    """Turn an `OSError` raised while writing below `target` into a `DataError` with a cure.

    Raises:
        DataError: For a full disk, a folder that may not be written, or any other failure of the file system.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _NO_SPACE:
            cause, cure = f"no space left while writing below {target}", "free some space and start again"
        elif error.errno in _NO_PERMISSION:
            cause, cure = (
                f"{target} may not be written",
                "choose another folder with --data_path, or change its permissions",
            )
        else:
            cause, cure = f"writing below {target} failed: {error.strerror or error}", "check the path"
        raise DataError(f"{cause} (nothing that was there before has been changed)", cure) from error


def is_no_permission(error: BaseException) -> bool:
    """Whether an error says that a place may not be written."""
    return isinstance(error, OSError) and error.errno in _NO_PERMISSION


@contextmanager
def staging_folder(target: Path) -> Iterator[Path]:
    """A temporary folder inside `target`, so that its files can be moved into place with one rename each.

    It is removed however the block ends; what a killed process left behind is removed by the next one.

    Args:
        target: Existing or new folder; created if needed.
    """
    is_new = not target.exists()
    with writing_errors(target):
        target.mkdir(parents=True, exist_ok=True)
        _remove_stale(target)
        staging = Path(tempfile.mkdtemp(prefix=f"{_STAGING_PREFIX}{os.getpid()}-", dir=target))
        try:
            yield staging
        finally:
            shutil.rmtree(staging, ignore_errors=True)
            if is_new and not any(target.iterdir()):  # a failure leaves no empty data set behind
                target.rmdir()


def _remove_stale(target: Path) -> None:
    for folder in target.glob(f"{_STAGING_PREFIX}*"):
        pid = folder.name[len(_STAGING_PREFIX) :].split("-")[0]
        if pid.isdigit() and not psutil.pid_exists(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)


def file_digests(path: Path, algorithms: tuple[str, ...] = ("sha256",)) -> dict[str, str]:
    """Hexadecimal digests of a file, read once.

    Args:
        path: File to read.
        algorithms: Names known to `hashlib`.

    Raises:
        DataError: If the file cannot be read.
    """
    digests = {name: hashlib.new(name) for name in algorithms}
    try:
        with path.open("rb") as stream:
            for block in iter(lambda: stream.read(1 << 20), b""):
                for digest in digests.values():
                    digest.update(block)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}", "check the path and its permissions") from error
    return {name: digest.hexdigest() for name, digest in digests.items()}
