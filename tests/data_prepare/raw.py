"""Tiny raw files in the original formats, with known content, and a web server with bad habits."""

from __future__ import annotations

import gzip
import http.server
import io
import json
import tarfile
import threading
import time
import zipfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Iterator

Event = tuple[str, str, int]  # user, item, time


def square(n: int = 5) -> list[Event]:
    """n users x n items, each pair once, newest first: an n-core. User k meets the items in the order k, k+1, ..."""
    events = [(f"u{user}", f"i{(user + step) % n}", 1000 + step) for user in range(n) for step in range(n)]
    return events[::-1]


def amazon_json(events: list[Event], *, python: bool = False) -> bytes:
    """Reviews as Amazon 2014 and 2018 have them; `python` gives the dictionaries of the older files."""
    lines = []
    for user, item, when in events:
        review = {
            "reviewerID": user,
            "asin": item,
            "helpful": [0, 1],
            "reviewText": 'it\'s "good"',
            "overall": 5.0,
            "unixReviewTime": when,
        }
        lines.append((repr(review) if python else json.dumps(review)) + "\n")
    return "".join(lines).encode()


def movielens_dat(events: list[Event]) -> bytes:
    return "".join(f"{user}::{item}::4::{when}\n" for user, item, when in events).encode()


def put(path: Path, content: bytes) -> Path:
    """Write bytes, compressed if the name ends in .gz."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def put_zip(path: Path, members: dict[str, bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def put_tar(path: Path, members: dict[str, bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = "w:gz" if path.name.endswith("gz") else "w"
    with tarfile.open(path, mode) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def sequences(inter: Path) -> dict[str, list[str]]:
    """Items per user, in the order of an atomic file."""
    lines = inter.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "user_id:token\titem_id:token\ttimestamp:float"
    found: dict[str, list[str]] = {}
    for line in lines[1:]:
        user, item, _ = line.split("\t")
        found.setdefault(user, []).append(item)
    return found


@dataclass
class Server:
    """One file at `url`, and how the server treats those who ask for it.

    Attributes:
        content: The file.
        cut_after: Bytes after which each answer breaks off; the last number holds for all later answers.
        ranges: Whether parts can be asked for.
        claimed_size: Content-Length, if not the true one.
        content_type: Content-Type.
        status: Another status than success.
        pause: Seconds before each block of 1000 bytes.
        asked: Range headers received.
    """

    content: bytes
    cut_after: list[int] = field(default_factory=list)
    ranges: bool = True
    claimed_size: int = -1
    content_type: str = "application/gzip"
    status: int = 200
    pause: float = 0.0
    asked: list[str] = field(default_factory=list)
    url: str = ""

    def answer(self, handler: http.server.BaseHTTPRequestHandler) -> None:
        wanted = handler.headers.get("Range", "")
        self.asked.append(wanted)
        if self.status != 200:
            handler.send_error(self.status)
            return
        start = int(wanted[len("bytes=") : -1]) if wanted and self.ranges else 0
        if start >= len(self.content):
            handler.send_error(416)
            return
        body = self.content[start:]
        handler.send_response(206 if start else 200)
        handler.send_header("Content-Type", self.content_type)
        handler.send_header("Content-Length", str(len(body) if self.claimed_size < 0 else self.claimed_size))
        if start:
            handler.send_header("Content-Range", f"bytes {start}-{len(self.content) - 1}/{len(self.content)}")
        handler.end_headers()
        if self.cut_after:
            body = body[: self.cut_after.pop(0) if len(self.cut_after) > 1 else self.cut_after[0]]
        for begin in range(0, len(body), 1000):
            time.sleep(self.pause)
            handler.wfile.write(body[begin : begin + 1000])
            handler.wfile.flush()


@contextmanager
def serve(server: Server) -> Iterator[Server]:
    """Run a server on a free port of this machine."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            with suppress(ConnectionError):  # those who ask may hang up
                server.answer(self)

        def log_message(self, *args: object) -> None:
            pass

    listener = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=listener.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    server.url = f"http://127.0.0.1:{listener.server_port}/file.gz"
    try:
        yield server
    finally:
        listener.shutdown()
        listener.server_close()
        thread.join()
