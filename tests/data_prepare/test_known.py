"""`prepare NAME` on tiny files in the original formats of every known data set."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from recbole_prism.data import prepare as module
from recbole_prism.data import sources
from recbole_prism.data.prepare import ensure_prepared, prepare_known
from recbole_prism.data_cli import prepare_main
from recbole_prism.errors import DataError
from recbole_prism.quick_start import run
from tests.data_prepare import raw
from tests.data_prepare.raw import Server, sequences, serve

EVENTS = [*raw.square(), ("u0", "rare", 5), ("once", "i0", 6)]
SQUARE = {f"u{user}": [f"i{(user + step) % 5}" for step in range(5)] for user in range(5)}


def test_amazon_2014_reviews(tmp_path: Path) -> None:
    path = raw.put(tmp_path / "reviews_Toys_and_Games_5.json.gz", raw.amazon_json(EVENTS))
    prepared = prepare_known("amazon-toys", tmp_path / "data", raw=path)
    assert prepared.path == tmp_path / "data" / "amazon-toys" / "amazon-toys.inter"
    assert sequences(prepared.path) == SQUARE
    assert (
        prepared.path.read_text().splitlines()[1] == "u4\ti4\t1000"
    )  # users in the order in which the file names them first


def test_the_older_files_hold_python_dictionaries(tmp_path: Path) -> None:
    path = raw.put(tmp_path / "reviews_Beauty.json.gz", raw.amazon_json(EVENTS, python=True))
    assert sequences(prepare_known("amazon-beauty", tmp_path, raw=path).path) == SQUARE


def test_amazon_2014_ratings_have_no_header(tmp_path: Path) -> None:
    rows = "".join(f"{user},{item},5.0,{when}\n" for user, item, when in EVENTS).encode()
    path = raw.put(tmp_path / "ratings_Sports_and_Outdoors.csv", rows)
    assert sequences(prepare_known("amazon-sports", tmp_path, raw=path).path) == SQUARE


def test_amazon_2018_ratings_name_the_item_first(tmp_path: Path) -> None:
    rows = "".join(f"{item},{user},5.0,{when}\n" for user, item, when in EVENTS).encode()
    path = raw.put(tmp_path / "Video_Games.csv", rows)
    assert sequences(prepare_known("amazon-games-2018", tmp_path, raw=path).path) == SQUARE


def test_amazon_2023_counts_milliseconds(tmp_path: Path) -> None:
    rows = "user_id,parent_asin,rating,timestamp\n"
    rows += "".join(f"{user},{item},5.0,{1000 * when + 250}\n" for user, item, when in EVENTS)
    path = raw.put(tmp_path / "Electronics.csv.gz", rows.encode())
    prepared = prepare_known("amazon-electronics-2023", tmp_path, raw=path)
    assert sequences(prepared.path) == SQUARE
    assert prepared.path.read_text().splitlines()[1] == "u4\ti4\t1000.25"


@pytest.mark.parametrize("name", ["ml-1m.zip", "ratings.dat"])
def test_movielens_1m_packed_or_not(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "check_file", lambda *args: None)  # the true archive's checksum is known
    content = raw.movielens_dat(EVENTS)
    if name.endswith(".zip"):
        path = raw.put_zip(tmp_path / name, {"ml-1m/README": b"read me", "ml-1m/ratings.dat": content})
    else:
        path = raw.put(tmp_path / name, content)
    assert sequences(prepare_known("ml-1m", tmp_path, raw=path).path) == SQUARE


def test_another_archive_than_the_published_one_is_refused(tmp_path: Path) -> None:
    path = raw.put_zip(tmp_path / "ml-1m.zip", {"ml-1m/ratings.dat": raw.movielens_dat(EVENTS)})
    with pytest.raises(DataError, match="ml-1m.zip has md5 .* instead of c4d9"):
        prepare_known("ml-1m", tmp_path, raw=path)


def test_movielens_20m_has_a_header(tmp_path: Path) -> None:
    rows = "userId,movieId,rating,timestamp\n" + "".join(f"{user},{item},3.5,{when}\n" for user, item, when in EVENTS)
    path = raw.put(tmp_path / "raw" / "ml-20m" / "ratings.csv", rows.encode())
    assert sequences(prepare_known("ml-20m", tmp_path, raw=path.parents[1]).path) == SQUARE  # one folder further down


@pytest.mark.parametrize("name", ["yelp_dataset.tar", "yelp_dataset.tgz", "yelp_academic_dataset_review.json"])
def test_yelp_starts_in_2020(tmp_path: Path, name: str) -> None:
    def review(user: str, item: str, date: str) -> str:
        return json.dumps({"review_id": "r", "user_id": user, "business_id": item, "stars": 4.0, "date": date}) + "\n"

    lines = [review(user, item, f"2020-01-01 00:00:{when - 1000:02d}") for user, item, when in EVENTS if when >= 1000]
    lines += [
        review(f"u{user}", "old", "2019-12-31 23:59:59") for user in range(5)
    ]  # five times: only the date removes it
    content = "".join(lines).encode()
    if name.endswith("json"):
        raw.put(tmp_path / name, content)
    else:
        members = {"yelp_academic_dataset_user.json": b"{}\n", "yelp_academic_dataset_review.json": content}
        raw.put_tar(tmp_path / name, members)
    prepared = prepare_known("yelp", tmp_path / "data", raw=tmp_path)
    assert sequences(prepared.path) == SQUARE
    assert prepared.manifest["steps"][:2] == [
        {"step": "raw", "users": 5, "items": 6, "interactions": 30},
        {"step": "since 2020-01-01", "users": 5, "items": 5, "interactions": 25},
    ]
    assert prepared.path.read_text().splitlines()[1] == "u4\ti4\t1577836800"


def test_yelp_cannot_be_downloaded_and_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        prepare_known("yelp", tmp_path)
    assert "accept the terms on https://" in error.value.cure
    assert f"put yelp_dataset.tar (or yelp_dataset.tgz) into {tmp_path / 'yelp' / 'raw'}" in error.value.cure


def test_ties_keep_file_order(tmp_path: Path) -> None:
    # all on one day, in an order that no sort of ids gives
    events = [(user, item, 86400) for item in ("i3", "i1", "i4", "i0", "i2") for user in ("u1", "u0", "u4", "u2", "u3")]
    path = raw.put(tmp_path / "reviews_Toys_and_Games_5.json.gz", raw.amazon_json(events))
    prepared = prepare_known("amazon-toys", tmp_path, raw=path)
    assert sequences(prepared.path) == {user: ["i3", "i1", "i4", "i0", "i2"] for user in ("u1", "u0", "u4", "u2", "u3")}
    assert (prepared.manifest["result"]["tied_events"], prepared.manifest["result"]["users_tied_at_end"]) == (20, 5)


def test_the_manifest_tells_source_rounds_and_counts(tmp_path: Path) -> None:
    path = raw.put(tmp_path / "reviews_Toys_and_Games_5.json.gz", raw.amazon_json(EVENTS))
    prepared = prepare_known("amazon-toys", tmp_path, raw=path)
    manifest = json.loads((tmp_path / "amazon-toys" / "amazon-toys.prepare.json").read_text())
    assert manifest == prepared.manifest
    assert manifest["steps"] == [
        {"step": "raw", "users": 6, "items": 6, "interactions": 27},
        {"step": "5-core, round 1", "users": 5, "items": 5, "interactions": 25},
        {"step": "written", "users": 5, "items": 5, "interactions": 25},
    ]
    assert manifest["source"]["size"] == path.stat().st_size and manifest["source"]["url_verified"] is False
    assert manifest["notes"] == [
        "the raw file has 27 rows, the published one 167,597: it may be cut off or changed",
        "counts differ from the paper (Table 1): 5 users instead of 19,412 (-19,407); "
        "5 items instead of 11,924 (-11,919); "
        "25 interactions instead of 167,597 (-167,572)",
    ]


def test_equal_counts_are_said_to_be_equal() -> None:
    source = sources.load_source("ml-1m")
    assert source.expected is not None
    assert (
        module.compare_counts(source.expected, source.expected, source.expected_from)
        == "counts equal the paper (Table 1)"
    )


def test_core_zero_wants_a_complete_file_and_another_name(tmp_path: Path) -> None:
    raw.put(tmp_path / "raw" / "reviews_Toys_and_Games_5.json.gz", raw.amazon_json(raw.square()))
    with pytest.raises(DataError, match="holds no raw file of amazon-toys"):
        prepare_known("amazon-toys", tmp_path, raw=tmp_path / "raw", core=0)
    rows = "".join(f"{user},{item},5.0,{when}\n" for user, item, when in EVENTS).encode()
    raw.put(tmp_path / "raw" / "ratings_Toys_and_Games.csv", rows)
    prepared = prepare_known("amazon-toys", tmp_path, raw=tmp_path / "raw", core=0)
    assert prepared.path == tmp_path / "amazon-toys-core0" / "amazon-toys-core0.inter"
    assert sequences(prepared.path) == {**SQUARE, "u0": ["rare", *SQUARE["u0"]], "once": ["i0"]}
    assert not any("paper" in note for note in prepared.manifest["notes"])


def test_a_second_time_does_nothing_and_other_settings_are_refused(tmp_path: Path) -> None:
    path = raw.put(tmp_path / "ratings.dat", raw.movielens_dat(EVENTS))
    first = prepare_known("ml-1m", tmp_path, raw=path)
    assert not first.was_current and prepare_known("ml-1m", tmp_path, raw=path).was_current
    path.write_bytes(raw.movielens_dat(raw.square(6)))
    with pytest.raises(DataError, match="was not made from this file with these settings"):
        prepare_known("ml-1m", tmp_path, raw=path)
    assert sequences(first.path) == SQUARE
    assert not prepare_known("ml-1m", tmp_path, raw=path, overwrite=True).was_current
    assert len(sequences(first.path)) == 6
    first.path.write_text("edited by hand")
    with pytest.raises(DataError, match="was not made from this file"):
        prepare_known("ml-1m", tmp_path, raw=path)


def test_a_missing_file_is_downloaded_into_the_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = sources.load_source("amazon-toys")
    entry = source.files[0]
    with serve(Server(gzip.compress(raw.amazon_json(EVENTS)))) as server:
        here = replace(source, files=(replace(entry, url=server.url),))
        monkeypatch.setattr(module, "load_source", lambda name: here)
        assert ensure_prepared("amazon-toys", tmp_path / "amazon-toys")
    assert sequences(tmp_path / "amazon-toys" / "amazon-toys.inter") == SQUARE
    assert (tmp_path / "amazon-toys" / "raw" / entry.name).is_file()
    assert ensure_prepared("amazon-toys", tmp_path / "amazon-toys")  # and now without the server


def test_a_config_of_a_known_name_brings_its_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def arrives(url: str, target: Path, **kwargs: object) -> None:
        raw.put(target, raw.amazon_json(EVENTS))

    monkeypatch.setattr(module, "download", arrives)
    config = module.config_with_data("SASRec", "amazon-toys", config_dict={"data_path": str(tmp_path)})
    assert sequences(Path(config["data_path"]) / "amazon-toys.inter") == SQUARE
    with pytest.raises(DataError, match="unknown data set 'amazon-toy'"):
        module.config_with_data("SASRec", "amazon-toy", config_dict={"data_path": str(tmp_path)})


def test_run_prepares_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def arrives(url: str, target: Path, **kwargs: object) -> None:
        raw.put(target, raw.amazon_json(EVENTS))

    monkeypatch.setattr(module, "download", arrives)
    settings = {"data_path": str(tmp_path), "device": "cpu", "epochs": 1, "topk": [1], "valid_metric": "Hit@1"}
    result = run("SASRec", "amazon-toys", config_dict=settings, saved=False)
    assert result["dataset"] == "amazon-toys" and 0 <= result["test_result"]["hit@1"] <= 1


def test_without_network_it_says_which_file_to_put_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*args: object, **kwargs: object) -> None:
        raise DataError("download of http://x did not succeed", "check the network")

    monkeypatch.setattr(module, "download", unreachable)
    with pytest.raises(DataError) as error:
        ensure_prepared("amazon-toys", tmp_path / "amazon-toys")
    assert "put reviews_Toys_and_Games_5.json.gz (or ratings_Toys_and_Games.csv, " in error.value.cure
    assert f"into {tmp_path / 'amazon-toys' / 'raw'}" in error.value.cure
    assert "https://snap.stanford.edu/" in error.value.cure


def test_unknown_and_bundled_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(DataError, match="no data set 'amazon-toy'") as error:
        prepare_known("amazon-toy", tmp_path)
    assert error.value.cure.startswith("did you mean amazon-toys?")
    assert not ensure_prepared("amazon-toy", tmp_path / "amazon-toy")
    assert not ensure_prepared("ml-100k", tmp_path / "ml-100k")
    assert prepare_main(["ml-100k"]) == 0
    assert "comes with RecBole" in capsys.readouterr().out
    assert prepare_main(["--list"]) == 0
    assert "amazon-electronics-2018    Amazon reviews 2018, Electronics\n" in capsys.readouterr().out


def test_the_verb_prints_what_was_done(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = raw.put(tmp_path / "ratings.dat", raw.movielens_dat(EVENTS))
    arguments = ["ml-1m", f"--raw={path}", f"--data_path={tmp_path}"]
    assert prepare_main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["raw", "6", "users", "6", "items", "27", "interactions"]
    assert lines[-1] == f"file        {tmp_path / 'ml-1m' / 'ml-1m.inter'}"
    assert prepare_main(arguments) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("up to date")
