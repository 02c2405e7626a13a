"""Opening a raw file whatever it is wrapped in: plain, .gz, .zip, .tar, .tar.gz; damage is reported in plain words."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
import zlib
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Iterator, cast

from recbole_prism.errors import DataError

_TAR_SUFFIXES = (".tar", ".tar.gz", ".tgz")
_DAMAGE = (EOFError, zlib.error, zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile)


def bare_name(name: str) -> str:
    """File name without a compression suffix: "a.csv.gz" -> "a.csv"; archives keep theirs."""
    return name[:-3] if name.endswith(".gz") and not name.endswith(_TAR_SUFFIXES) else name


class _Checked(io.RawIOBase):
    """A stream that reports damage of the file below it as a `DataError` wherever it is read from."""

    def __init__(self, stream: IO[bytes], path: Path) -> None:
        self._stream = stream
        self._path = path

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:  # type: ignore[no-untyped-def]
        try:
            block = self._stream.read(len(buffer))
        except (*_DAMAGE, OSError) as error:
            raise _unreadable(self._path, error) from error
        buffer[: len(block)] = block
        return len(block)


def _unreadable(path: Path, error: Exception) -> DataError:
    if isinstance(error, OSError) and not isinstance(error, gzip.BadGzipFile):
        return DataError(f"{path} cannot be read: {error.strerror}", "check the path and its permissions")
    return DataError(f"{path} is damaged or cut off: {error}", "remove the file and download it again")


@contextmanager
def open_raw(path: Path, member: str = "") -> Iterator[io.BufferedReader]:
    """Open a raw file as a stream of its decompressed bytes.

    Args:
        path: The file.
        member: For archives, the file name of the wanted member, in whatever folder it lies. Empty: the only member.

    Raises:
        DataError: If the file is missing, damaged or cut off (also later, while reading), or holds no such member.
    """
    with ExitStack() as stack:
        try:
            stream = _open(path, member, stack)
        except (*_DAMAGE, OSError) as error:
            raise _unreadable(path, error) from error
        yield stack.enter_context(io.BufferedReader(_Checked(stream, path), buffer_size=1 << 20))


def _open(path: Path, member: str, stack: ExitStack) -> IO[bytes]:
    name = path.name.lower()
    if name.endswith(".zip"):
        archive = stack.enter_context(zipfile.ZipFile(path))
        wanted = _choose([info.filename for info in archive.infolist() if not info.is_dir()], member, path)
        return stack.enter_context(archive.open(wanted))
    if name.endswith(_TAR_SUFFIXES):
        return _open_tar_member(path, member, stack)
    if name.endswith(".gz"):
        return cast(IO[bytes], stack.enter_context(gzip.open(path, "rb")))
    return stack.enter_context(path.open("rb"))


def _open_tar_member(path: Path, member: str, stack: ExitStack) -> IO[bytes]:
    """A tar has no table of contents, so the wanted member is looked for from the front and read in place."""
    archive = stack.enter_context(tarfile.open(path, "r|*"))
    seen = []
    for info in archive:
        if not info.isfile():
            continue
        seen.append(info.name)
        if member in ("", PurePosixPath(info.name).name):
            stream = archive.extractfile(info)
            if stream is not None:
                return stack.enter_context(stream)
    raise _no_member(path, member, seen)


def _choose(names: list[str], member: str, path: Path) -> str:
    found = [name for name in names if member in ("", PurePosixPath(name).name)]
    if len(found) != 1:
        raise _no_member(path, member, names)
    return found[0]


def _no_member(path: Path, member: str, names: list[str]) -> DataError:
    shown = ", ".join(names[:20]) or "nothing"
    wanted = f"one file {member}" if member else "one file and nothing else"
    return DataError(f"{path} must hold {wanted}; it holds: {shown}", "unpack the right file first")
