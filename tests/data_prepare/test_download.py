"""Downloads from a server that is slow, breaks off, lies about sizes, or is not there."""

from __future__ import annotations

import errno
import hashlib
import random
import socket
from pathlib import Path

import pytest

from recbole_prism.data import download as module
from recbole_prism.data.download import download
from recbole_prism.errors import DataError
from tests.data_prepare.raw import Server, serve

CONTENT = random.Random(0).randbytes(50_000)
CHECKSUM = f"md5:{hashlib.md5(CONTENT).hexdigest()}"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(module, "TIMEOUT_SECONDS", 0.5)
    monkeypatch.setattr(module, "BLOCK", 4096)


def test_a_file_arrives_whole_and_under_its_name_only(tmp_path: Path) -> None:
    target = tmp_path / "new" / "file.gz"
    with serve(Server(CONTENT)) as server:
        download(server.url, target, size=len(CONTENT), checksum=CHECKSUM)
    assert target.read_bytes() == CONTENT
    assert [path.name for path in target.parent.iterdir()] == ["file.gz"]


def test_a_broken_line_goes_on_where_it_stopped(tmp_path: Path) -> None:
    with serve(Server(CONTENT, cut_after=[20_000, 12_345, 10**9])) as server:
        download(server.url, tmp_path / "file.gz", checksum=CHECKSUM)
        assert server.asked == ["", "bytes=20000-", "bytes=32345-"]
    assert (tmp_path / "file.gz").read_bytes() == CONTENT


def test_a_line_that_breaks_often_but_moves_on_gets_there(tmp_path: Path) -> None:
    with serve(Server(CONTENT, cut_after=[3000])) as server:
        download(server.url, tmp_path / "file.gz", checksum=CHECKSUM)
        assert len(server.asked) == 17 > module.ATTEMPTS


def test_a_later_call_goes_on_as_well(tmp_path: Path) -> None:
    (tmp_path / "file.gz.part").write_bytes(CONTENT[:30_000])
    with serve(Server(CONTENT)) as server:
        download(server.url, tmp_path / "file.gz", checksum=CHECKSUM)
        assert server.asked == ["bytes=30000-"]
    assert (tmp_path / "file.gz").read_bytes() == CONTENT


def test_a_complete_part_only_needs_its_name(tmp_path: Path) -> None:
    (tmp_path / "file.gz.part").write_bytes(CONTENT)
    with serve(Server(CONTENT)) as server:
        download(server.url, tmp_path / "file.gz", checksum=CHECKSUM)
    assert (tmp_path / "file.gz").read_bytes() == CONTENT


def test_a_server_without_ranges_starts_again(tmp_path: Path) -> None:
    (tmp_path / "file.gz.part").write_bytes(b"x" * 30_000)
    with serve(Server(CONTENT, ranges=False)) as server:
        download(server.url, tmp_path / "file.gz")
    assert (tmp_path / "file.gz").read_bytes() == CONTENT


def test_a_server_that_gets_stuck_is_given_up_with_what_it_sent(tmp_path: Path) -> None:
    with (
        serve(Server(CONTENT, cut_after=[20_000, 0])) as server,
        pytest.raises(DataError, match="20,000 bytes are kept"),
    ):
        download(server.url, tmp_path / "file.gz")
    assert (tmp_path / "file.gz.part").read_bytes() == CONTENT[:20_000]
    assert not (tmp_path / "file.gz").exists()


def test_a_slow_server_is_waited_for(tmp_path: Path) -> None:
    with serve(Server(CONTENT[:5000], pause=0.1)) as server:
        download(server.url, tmp_path / "file.gz")
    assert (tmp_path / "file.gz").read_bytes() == CONTENT[:5000]


def test_a_silent_server_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TIMEOUT_SECONDS", 0.1)
    monkeypatch.setattr(module, "ATTEMPTS", 1)
    with (
        serve(Server(CONTENT[:5000], pause=0.3)) as server,
        pytest.raises(DataError, match="did not succeed.*timed out"),
    ):
        download(server.url, tmp_path / "file.gz")


@pytest.mark.parametrize(
    ("server", "expected", "message"),
    [
        (Server(CONTENT), {"size": 7}, "offers 50,000 bytes instead of 7"),
        (Server(CONTENT[:-1]), {"checksum": CHECKSUM}, "has md5 .* instead of"),
        (Server(CONTENT, status=404), {}, "answers 404"),
        (Server(CONTENT, content_type="text/html; charset=utf-8"), {}, "gives a web page"),
    ],
)
def test_the_wrong_file_is_refused(tmp_path: Path, server: Server, expected: dict, message: str) -> None:
    target = tmp_path / "file.gz"
    target.write_bytes(b"old")
    with serve(server), pytest.raises(DataError, match=message):
        download(server.url, target, **expected)
    assert target.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == [
        "file.gz"
    ]  # a wrong part is not kept, it could not be continued


def test_no_network_says_so_at_once(tmp_path: Path) -> None:
    with socket.socket() as closed:  # a port that nobody listens on
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    with pytest.raises(DataError, match="did not succeed.*refused.*nothing was received"):
        download(f"http://127.0.0.1:{port}/file", tmp_path / "file")


def test_a_full_disk_is_seen_before_the_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 10})())
    with serve(Server(CONTENT)) as server, pytest.raises(DataError, match="10 bytes free, the download needs 50,000"):
        download(server.url, tmp_path / "file.gz")


def test_a_disk_that_fills_up_keeps_what_came(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = module._blocks

    def filling_up(*args):
        for number, block in enumerate(blocks(*args)):
            if number == 2:
                raise OSError(errno.ENOSPC, "No space left on device")
            yield block

    monkeypatch.setattr(module, "_blocks", filling_up)
    with serve(Server(CONTENT)) as server:
        with pytest.raises(DataError, match="no space left"):
            download(server.url, tmp_path / "file.gz")
        assert (tmp_path / "file.gz.part").stat().st_size == 2 * 4096
        monkeypatch.setattr(module, "_blocks", blocks)
        download(server.url, tmp_path / "file.gz", checksum=CHECKSUM)
        assert server.asked == ["", "bytes=8192-"]
