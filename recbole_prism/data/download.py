"""Resumable download to a temporary name, with size and checksum.

Uses the standard library: one address, one file, the Range header and a loop are all that is needed, so no dependency
is added.
"""

from __future__ import annotations

import http.client
import logging
import os
import shutil
import socket
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator, Optional

from recbole_prism.data.files import file_digests, writing_errors
from recbole_prism.errors import DataError
from recbole_prism.progress import progress

logger = logging.getLogger("recbole_prism")

BLOCK = 1 << 20
TIMEOUT_SECONDS = 30.0
ATTEMPTS = 5
PAUSE_SECONDS = 2.0
# socket.timeout is TimeoutError only from Python 3.10 on
_BROKEN = (ConnectionError, TimeoutError, socket.timeout, http.client.HTTPException, urllib.error.URLError)


@dataclass(frozen=True)
class _Answer:
    """What the server says it will send: first byte, and size of the whole file where it tells."""

    start: int
    total: Optional[int]


def download(
    url: str, target: Path, *, size: Optional[int] = None, checksum: str = "", show_progress: bool = False
) -> None:
    """Download a file; an interrupted one goes on where it stopped, also in a later call.

    The bytes go to `<target>.part`; only a complete and checked file gets its name.

    Args:
        url: Address (http, https).
        target: File to write. Its folder is created.
        size: Expected bytes, where known.
        checksum: "md5:<hex>" or "sha256:<hex>", where known.
        show_progress: Whether to show a bar, in MiB.

    Raises:
        DataError: If the server cannot be reached, keeps breaking off, sends something of another size or checksum, or
            the disk is full. `target` is then as it was.
    """
    part = target.with_name(target.name + ".part")
    with writing_errors(target.parent):
        target.parent.mkdir(parents=True, exist_ok=True)
        _fetch(url, part, size, show_progress)
        check_file(part, size, checksum, discard=True)
        os.replace(part, target)


def check_file(path: Path, size: Optional[int], checksum: str, *, discard: bool = False) -> None:
    """Compare a file with its known size and checksum.

    Args:
        path: The file.
        size: Expected bytes, or None.
        checksum: "md5:<hex>" or "sha256:<hex>", or "".
        discard: Remove the file if it is wrong (a wrong partial download cannot be continued).

    Raises:
        DataError: If one of them differs.
    """
    problem = ""
    if size is not None and path.stat().st_size != size:
        problem = f"has {path.stat().st_size:,} bytes instead of {size:,}"
    elif checksum:
        algorithm, wanted = checksum.split(":")
        found = file_digests(path, (algorithm,))[algorithm]
        if found != wanted:
            problem = f"has {algorithm} {found} instead of {wanted}"
    if problem:
        if discard:
            path.unlink()
        raise DataError(
            f"{path.name} {problem}", "the file is damaged or the publisher has changed it: download it again"
        )


def _fetch(url: str, part: Path, size: Optional[int], show_progress: bool) -> None:
    failure: Optional[Exception] = None
    fruitless, most = 0, -1  # only attempts that bring nothing new count, so a line that breaks often still gets there
    while fruitless < ATTEMPTS:
        if most >= 0:
            logger.warning("%s broke off (%s); going on at byte %d", url, failure or "closed early", _size(part))
            time.sleep(PAUSE_SECONDS * fruitless)
        try:
            if _fetch_once(url, part, size, show_progress):
                return
            failure = None
        except urllib.error.HTTPError as error:
            raise DataError(
                f"{url} answers {error.code} {error.reason}", "the address may have moved; get the file by hand"
            ) from error
        except _BROKEN as error:
            failure = error
            if (
                most < 0
                and isinstance(error, urllib.error.URLError)
                and not isinstance(error.reason, (TimeoutError, socket.timeout))
            ):
                break  # never reached: no network, no such host
        fruitless = 0 if _size(part) > most else fruitless + 1
        most = max(most, _size(part))
    state = (
        f"{_size(part):,} bytes are kept in {part.name}, a new start goes on there"
        if _size(part)
        else "nothing was received"
    )
    raise DataError(
        f"download of {url} did not succeed: {failure or 'the server broke off'}; {state}",
        "check the network and start again",
    ) from failure


def _fetch_once(url: str, part: Path, size: Optional[int], show_progress: bool) -> bool:
    """One connection. Returns whether the file is complete."""
    have = _size(part)
    request = urllib.request.Request(
        url, headers={"User-Agent": "recbole-prism", **({"Range": f"bytes={have}-"} if have else {})}
    )
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:  # nothing after the last byte we have: complete, or not the same file any more
            if size is not None and have != size:
                part.unlink()
                return False
            return True
        raise
    with response:
        if "text/html" in response.headers.get("Content-Type", ""):
            raise DataError(f"{url} gives a web page, not a file", "open it in a browser and get the file by hand")
        answer = _read_answer(response, have)
        if size is not None and answer.total is not None and answer.total != size:
            raise DataError(
                f"{url} offers {answer.total:,} bytes instead of {size:,}",
                "the publisher has changed the file; get the right one by hand",
            )
        _check_space(part, answer)
        with part.open("ab" if answer.start else "wb") as stream:
            for block in _blocks(response, answer, part.name[: -len(".part")], show_progress):
                stream.write(block)
    # http.client ends quietly when a server closes early, so the size decides
    return answer.total is None or _size(part) >= answer.total


def _read_answer(response: "http.client.HTTPResponse", have: int) -> _Answer:
    length = response.headers.get("Content-Length")
    if response.status == 206:
        total = response.headers.get("Content-Range", "").rpartition("/")[2]
        return _Answer(have, int(total) if total.isdigit() else None)
    return _Answer(0, int(length) if length else None)  # the server does not resume: start again


def _blocks(response: "http.client.HTTPResponse", answer: _Answer, name: str, show_progress: bool) -> Iterator[bytes]:
    blocks = iter(lambda: response.read(BLOCK), b"")
    total = None if answer.total is None else -(-(answer.total - answer.start) // BLOCK)
    yield from progress(blocks, description=f"{name} (MiB)", total=total, enabled=show_progress)


def _check_space(part: Path, answer: _Answer) -> None:
    free = shutil.disk_usage(part.parent).free
    needed = (answer.total or 0) - answer.start
    if needed > free:
        raise DataError(
            f"{part.parent} has {free:,} bytes free, the download needs {needed:,}",
            "free some space, or use another --data_path",
        )


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
