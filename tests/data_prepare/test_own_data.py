"""`prepare --from`: the user's own log in every format, with awkward ids and times."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pandas as pd
import pytest

from recbole_prism.config import Config
from recbole_prism.data.dataset import SequentialDataset
from recbole_prism.data_cli import prepare_main
from recbole_prism.errors import DataError
from tests.data_prepare.raw import sequences

# one user, in file order; chronological: 日本, a b, 007
IDS = ["007", "日本", "a b"]
ISO = ["2024-03-01T12:00:00+02:00", "2024-02-29", "2024-03-01 09:59:59.5"]  # 10:00:00, -, 9:59:59.5 in UTC
SECONDS = [1709287200, 1709164800, 1709287199.5]
LINES = ["x 1\t日本\t1709164800", "x 1\ta b\t1709287199.5", "x 1\t007\t1709287200"]


def prepare(tmp_path: Path, file: Path, *more: str) -> list[str]:
    names = ["--user", "uid", "--item", "asin", "--time", "when", "--name", "mine"]
    assert prepare_main(["--from", str(file), *names, "--data_path", str(tmp_path / "data"), *more]) == 0
    return (tmp_path / "data" / "mine" / "mine.inter").read_text(encoding="utf-8").splitlines()[1:]


@pytest.mark.parametrize("times", [ISO, SECONDS])
@pytest.mark.parametrize("kind", ["csv", "tsv", "csv.gz", "semicolon.csv", "jsonl", "json.gz", "parquet"])
def test_every_format_gives_the_same_file(tmp_path: Path, kind: str, times: list) -> None:
    file = tmp_path / f"log.{kind}"
    frame = pd.DataFrame({"note": ['"quoted, with comma"'] * 3, "when": times, "uid": ["x 1"] * 3, "asin": IDS})
    if kind == "parquet":
        frame.to_parquet(file)
    elif "json" in kind:
        content = "".join(json.dumps(row) + "\n" for row in frame.to_dict("records")).encode()
        file.write_bytes(gzip.compress(content) if kind.endswith("gz") else content)
    else:
        delimiter = {"tsv": "\t", "semicolon.csv": ";"}.get(kind, ",")
        frame.to_csv(file, index=False, sep=delimiter)
    assert prepare(tmp_path, file) == LINES


def test_parquet_types(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {"uid": [2**60 + 1, 3], "asin": pd.Categorical(["b", "a"]), "when": pd.to_datetime(ISO[1:], format="ISO8601")}
    )
    frame.to_parquet(tmp_path / "log.parquet")
    assert prepare(tmp_path, tmp_path / "log.parquet") == [f"{2**60 + 1}\tb\t1709164800", "3\ta\t1709287199.5"]


def test_json_numbers_are_ids_too(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text(
        '{"uid": 7, "asin": "7", "when": 1}\n\n{"uid": "007", "asin": 10, "when": "2"}\n'
    )
    assert prepare(tmp_path, tmp_path / "log.jsonl") == ["7\t7\t1", "007\t10\t2"]


@pytest.mark.parametrize(
    ("unit", "written"),
    [("s", "1709287200123"), ("ms", "1709287200.123"), ("us", "1709287.200123"), ("ns", "1709.287200123")],
)
def test_time_units(tmp_path: Path, unit: str, written: str) -> None:
    (tmp_path / "log.csv").write_text("uid,asin,when\n1,2,1709287200123\n")
    assert prepare(tmp_path, tmp_path / "log.csv", "--time_unit", unit) == [f"1\t2\t{written}"]


def test_a_byte_order_mark_and_windows_line_ends(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_bytes("\ufeffuid,asin,when\r\n1,é,5\r\n1,z,4\r\n".encode())
    assert prepare(tmp_path, tmp_path / "log.csv") == ["1\tz\t4", "1\té\t5"]


def test_unused_columns_may_be_nameless_or_stand_twice(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(",uid,x,x,asin,when\n0,1,a,b,2,3\n")
    assert prepare(tmp_path, tmp_path / "log.csv") == ["1\t2\t3"]


def test_the_data_set_reads_back_every_id(tmp_path: Path) -> None:
    ids = ["007", "7", "日本", "a b", 'a"b', "1e3", " padded ", "x,y", "#", "-", "Na"]
    rows = pd.DataFrame(
        {"uid": [f"user {token}" for token in ids for _ in ids], "asin": ids * len(ids), "when": range(121)}
    )
    rows.to_csv(tmp_path / "log.csv", index=False)
    prepare(tmp_path, tmp_path / "log.csv")
    dataset = SequentialDataset(Config("SASRec", "mine", config_dict={"data_path": str(tmp_path / "data")}))
    assert set(dataset.field2id_token["item_id"]) == {"[PAD]", *ids}
    assert set(dataset.field2id_token["user_id"]) == {"[PAD]", *(f"user {token}" for token in ids)}
    user = dataset.token2id("user_id", "user a b")
    items = dataset.items[dataset.inter_feat["user_id"].numpy() == user]
    assert list(dataset.id2token("item_id", items)) == ids


def test_nothing_is_filtered_unless_asked(tmp_path: Path) -> None:
    rows = "".join(f"u{user},i{item},{user}\n" for user in range(3) for item in range(3)) + "u0,rare,9\nu0,i0,10\n"
    (tmp_path / "log.csv").write_text("uid,asin,when\n" + rows)
    assert len(prepare(tmp_path, tmp_path / "log.csv")) == 11
    lines = prepare(tmp_path, tmp_path / "log.csv", "--core", "3", "--overwrite")
    assert len(lines) == 10 and not any("rare" in line for line in lines)
    assert sequences(tmp_path / "data" / "mine" / "mine.inter")["u0"] == ["i0", "i1", "i2", "i0"]  # the repeat is kept


def test_chunks_do_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(f"u{k % 7}", f"i{k % 11}", 1000 - k // 3) for k in range(100)]
    (tmp_path / "log.csv").write_text("uid,asin,when\n" + "".join(f"{u},{i},{t}\n" for u, i, t in rows))
    whole = prepare(tmp_path, tmp_path / "log.csv")
    assert len(whole) == 100
    monkeypatch.setattr("recbole_prism.data.readers.CHUNK_ROWS", 9)
    assert prepare(tmp_path, tmp_path / "log.csv", "--overwrite") == whole


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--from", "x.csv", "--user", "uid"], "needs --item, --time, --name as well"),
        ([], "nothing to prepare"),
        (["amazon-toys", "--user", "uid"], "--user without --from"),
        (["amazon-toys", "--core", "-1"], "is negative"),
    ],
)
def test_wrong_arguments(arguments: list[str], message: str) -> None:
    with pytest.raises(DataError, match=message):
        prepare_main(arguments)


@pytest.mark.parametrize("name", ["../mine", "a/b", ".hidden"])
def test_a_name_is_not_a_path(tmp_path: Path, name: str) -> None:
    (tmp_path / "log.csv").write_text("uid,asin,when\n1,2,3\n")
    with pytest.raises(DataError, match="cannot be the name"):
        prepare(tmp_path, tmp_path / "log.csv", "--name", name)
