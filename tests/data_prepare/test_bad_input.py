"""Every bad input ends in a clear error, and what was there before is still there."""

from __future__ import annotations

import errno
import gzip
import os
import resource
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from recbole_prism.data import event_store, files
from recbole_prism.data import prepare as module
from recbole_prism.data.prepare import prepare_known
from recbole_prism.data_cli import prepare_main
from recbole_prism.errors import DataError
from tests.data_prepare import raw


@pytest.fixture()
def before(tmp_path: Path) -> Path:
    """A prepared data set "mine" that must survive."""
    folder = tmp_path / "data" / "mine"
    folder.mkdir(parents=True)
    (folder / "mine.inter").write_text("old")
    (folder / "mine.prepare.json").write_text("old")
    return folder


def fails(before: Path, content: bytes, message: str, name: str = "log.csv", *more: str) -> DataError:
    """Prepare a file over an existing data set; it must fail and leave nothing behind."""
    file = before.parents[1] / name
    file.write_bytes(content)
    columns = ["--user", "uid", "--item", "asin", "--time", "when", "--name", "mine", "--overwrite", *more]
    with pytest.raises(DataError, match=message) as error:
        prepare_main(["--from", str(file), *columns, "--data_path", str(before.parent)])
    assert {path.name: path.read_text() for path in before.iterdir()} == {
        "mine.inter": "old",
        "mine.prepare.json": "old",
    }
    return error.value


GOOD = b"uid,asin,when\n1,2,3\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has no column 'uid', 'asin', 'when'"),
        (b"uid,asin,when\n", "holds no interactions"),
        (b"uid,item,time\n1,2,3\n", "has no column 'asin', 'when'; it has: 'uid', 'item', 'time'"),
        (b"uid,asin,when,uid\n1,2,3,4\n", "has two columns 'uid'"),
        (b"uid,asin,when\n1,2,3\n1,2,soon\n", "row 2, column 'when': 'soon' is not a time"),
        (b"uid,asin,when\n1,2,03/16/2013\n", "row 1, column 'when': '03/16/2013' is not a time"),
        (b"uid,asin,when\n1,2,2020-01-01\n1,2,5\n", "row 2, column 'when': '5' is not a time"),
        (b"uid,asin,when\n1,2,2020-13-01\n", "row 1, column 'when'"),
        (b"uid,asin,when\n1,2,\n", "row 1, column 'when': '' is not a time"),
        (b"uid,asin,when\n1,2,inf\n", "row 1, column 'when': 'inf' is not a time"),
        (b"uid,asin,when\n1,2,1709287200123456789\n", "too large to be kept exactly"),
        (b"uid,asin,when\n1,2,3\n1,,3\n", "row 2, column 'asin': '' is not an id"),
        (b"uid,asin,when\n1,2,3\n4,5,6,7\n", "broken line: .*line 3"),
        (b"uid,asin,when\n1,2,3,4\n", "broken line"),
        (b"uid,asin,when\n1,2,3\n1,2\n", "row 2, column 'when': '' is not a time"),
        (b'uid,asin,when\n1,"2\n3",3\n', r"the asin id '2\\n3' holds a tab or line break"),
        (b'uid,asin,when\n"a\tb",2,3\n', r"the uid id 'a\\tb' holds a tab"),
        (b'uid,asin,when\n1,"""x""",3\n', "starts with a quote"),
        (b"uid,asin,when\n1,NA,3\n", "the asin id 'NA' would be read back as a missing value"),
        (b"uid,asin,when\n[PAD],1,3\n", "the uid id '\\[PAD\\]' would be read back as a missing value"),
        (b"uid,asin,when\n1,\xff,3\n", "is not UTF-8 text"),
    ],
)
def test_csv(before: Path, content: bytes, message: str) -> None:
    assert fails(before, content, message).cure


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"uid": 1, "asin": 2, "when": 3}\n{"uid": 1, "asin"', "line 2: neither JSON nor a Python dictionary"),
        (b'{"uid": 1, "when": 3}\n', "line 1: has no column 'asin'; it has: 'uid', 'when'"),
        (b'{"uid": null, "asin": 2, "when": 3}\n', "row 1, column 'uid': None is not an id"),
        (b'{"uid": 1.5, "asin": 2, "when": 3}\n', "row 1, column 'uid': 1.5 is not an id"),
        (b'{"uid": 1, "asin": 2, "when": null}\n', "row 1, column 'when': None is not a time"),
        (b"[1, 2, 3]\n", "line 1: not an object"),
    ],
)
def test_json(before: Path, content: bytes, message: str) -> None:
    fails(before, content, message, "log.jsonl")


def test_other_files(before: Path) -> None:
    fails(before, b"PAR1 but not really", "damaged or not a Parquet file", "log.parquet")
    fails(before, GOOD, "cannot tell the format", "log.txt")
    fails(before, b"not gzip at all", "is damaged or cut off", "log.csv.gz")
    with pytest.raises(DataError, match="no.csv cannot be read: No such file"):
        prepare_main(["--from", str(before / "no.csv"), *"--user u --item i --time t --name new".split()])


@pytest.mark.parametrize("share", [0.3, 0.9, 0.999])
def test_a_truncated_gzip(before: Path, share: float) -> None:
    content = gzip.compress(b"uid,asin,when\n" + b"".join(b"%d,%d,%d\n" % (k, k * 7, k) for k in range(5000)))
    fails(before, content[: int(len(content) * share)], "log.csv.gz is damaged or cut off", "log.csv.gz")


def test_a_truncated_zip_and_tar(tmp_path: Path) -> None:
    content = raw.movielens_dat(raw.square(40))
    zipped = raw.put_zip(tmp_path / "ratings.zip", {"ratings.dat": content})
    packed = raw.put_tar(tmp_path / "ratings.tar", {"ratings.dat": content})
    for path in (zipped, packed):
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        with pytest.raises(DataError, match="is damaged or cut off|neither|broken"):
            _read_all(path)


def test_an_archive_without_the_wanted_file(tmp_path: Path) -> None:
    for path in (
        raw.put_zip(tmp_path / "a.zip", {"x/README": b""}),
        raw.put_tar(tmp_path / "a.tar", {"x/README": b""}),
    ):
        with pytest.raises(DataError, match="must hold one file ratings.dat; it holds: x/README"):
            _read_all(path)


def _read_all(path: Path) -> None:
    from recbole_prism.data.readers import Table, read_events

    table = Table("user", "item", "time", delimiter="::", header=("user", "item", "rating", "time"))
    list(read_events(path, table, "ratings.dat"))


def test_nothing_left_after_the_core(before: Path) -> None:
    error = fails(
        before, GOOD, "nothing is left of 1 interactions of log.csv after: 2-core, round 1", "log.csv", "--core", "2"
    )
    assert "--core" in error.cure


def test_a_failure_leaves_no_empty_data_set(tmp_path: Path) -> None:
    path = raw.put(tmp_path / "ratings.dat", raw.movielens_dat([("a", "b", 1)]))
    with pytest.raises(DataError, match="nothing is left"):
        prepare_known("ml-1m", tmp_path / "data", raw=path)
    assert not (tmp_path / "data" / "ml-1m").exists()


def test_a_folder_that_may_not_be_written(before: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_only(*args: object, **kwargs: object) -> str:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(files.tempfile, "mkdtemp", read_only)  # permissions do not stop root, so they are simulated
    assert "--data_path" in fails(before, GOOD, "may not be written").cure


def test_a_data_path_that_is_a_file(tmp_path: Path) -> None:
    path = raw.put(tmp_path / "ratings.dat", raw.movielens_dat(raw.square()))
    (tmp_path / "data").write_text("a file")
    with pytest.raises(DataError, match="writing below .* failed: Not a directory"):
        prepare_known("ml-1m", tmp_path / "data", raw=path)


@pytest.mark.parametrize("culprit", ["events.bin", "bucket0.bin", "inter"])
def test_a_full_disk(before: Path, monkeypatch: pytest.MonkeyPatch, culprit: str) -> None:
    def open_(path: Path, mode: str, **options: object) -> object:
        if path.name == culprit and mode[0] in "wa":
            raise OSError(errno.ENOSPC, "No space left on device")
        return open(path, mode, **options)  # type: ignore[call-overload]

    for user in (event_store, module.write_interactions.__globals__):
        if isinstance(user, dict):
            monkeypatch.setitem(user, "open", open_)
        else:
            monkeypatch.setattr(user, "open", open_, raising=False)
    assert fails(before, GOOD, "no space left while writing").cure.startswith("free some space")


_CHILD = """
    import resource, signal, sys
    from pathlib import Path
    from recbole_prism.data import prepare, readers
    from recbole_prism.errors import DataError
    readers.CHUNK_ROWS = 500
    {setup}
    try:
        prepare.prepare_known("ml-1m", Path(sys.argv[2]), raw=Path(sys.argv[1]))
    except DataError as error:
        sys.exit(str(error))
"""


def _run_child(setup: str, path: Path, data_path: Path) -> subprocess.CompletedProcess:
    code = textwrap.dedent(_CHILD).format(setup=textwrap.dedent(setup))
    root = str(Path(module.__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": root, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-c", code, path, data_path], capture_output=True, text=True, env=environment, check=False
    )


def test_the_system_refuses_to_write_more(tmp_path: Path) -> None:
    path = raw.put(tmp_path / "ratings.dat", raw.movielens_dat(raw.square(40)))
    done = _run_child(
        "resource.setrlimit(resource.RLIMIT_FSIZE, (9000, resource.RLIM_INFINITY))", path, tmp_path / "data"
    )
    assert "no space left while writing below" in done.stderr and done.returncode == 1
    assert not (tmp_path / "data" / "ml-1m").exists()
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 9000


def test_killed_in_the_middle_and_started_again(tmp_path: Path) -> None:
    path = raw.put(tmp_path / "ratings.dat", raw.movielens_dat(raw.square(40)))
    kill = """
        import os
        append = prepare.EventStore.append
        def killed(self, *columns):
            append(self, *columns)
            if self._path.stat().st_size > 16_000:
                os.kill(os.getpid(), signal.SIGKILL)
        prepare.EventStore.append = killed
    """
    done = _run_child(kill, path, tmp_path / "data")
    assert done.returncode == -signal.SIGKILL
    left = [entry.name for entry in (tmp_path / "data" / "ml-1m").iterdir()]
    assert len(left) == 1 and left[0].startswith(".prepare-")
    prepared = prepare_known("ml-1m", tmp_path / "data", raw=path)
    assert len(raw.sequences(prepared.path)) == 40
    assert sorted(entry.name for entry in prepared.path.parent.iterdir()) == ["ml-1m.inter", "ml-1m.prepare.json"]


def test_interrupted_by_the_user(before: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "write_interactions", interrupted)
    file = raw.put(before.parents[1] / "log.csv", GOOD)
    columns = "--user uid --item asin --time when --name mine --overwrite".split()
    with pytest.raises(KeyboardInterrupt):
        prepare_main(["--from", str(file), *columns, "--data_path", str(before.parent)])
    assert sorted(path.name for path in before.iterdir()) == ["mine.inter", "mine.prepare.json"]
    assert (before / "mine.inter").read_text() == "old"
