"""The `source:` keys of properties/dataset/: complete, consistent, and refused when wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from recbole_prism.data.kcore import Counts
from recbole_prism.data.sources import known_sources, load_source, parse_source
from recbole_prism.errors import ConfigError
from recbole_prism.settings_files import load_yaml, properties_folder

# Table 1 of the paper
PAPER = {
    "amazon-toys": Counts(19412, 11924, 167597),
    "amazon-beauty": Counts(22363, 12101, 198502),
    "amazon-games": Counts(24303, 10672, 231780),
    "amazon-sports": Counts(35598, 18357, 296337),
    "ml-1m": Counts(6040, 3416, 999610),
    "yelp": Counts(29915, 21572, 345186),
    "amazon-electronics": Counts(192403, 63001, 1689188),
}


def test_all_data_sets_of_the_paper_are_known_with_its_counts() -> None:
    carried = {name: load_source(name).expected for name in known_sources()}
    assert {name: counts for name, counts in carried.items() if counts is not None} == PAPER


@pytest.mark.parametrize("name", known_sources())
def test_every_source_can_be_got(name: str) -> None:
    source = load_source(name)
    assert source.page.startswith("https://") and source.licence and source.title
    assert source.bundled or source.files
    assert all(entry.url.startswith("https://") or source.manual for entry in source.files)
    assert not any(entry.verified for entry in source.files)  # nobody could try them yet
    settings = load_yaml(properties_folder() / "dataset" / f"{name}.yaml")
    assert settings["load_col"] == {"inter": ["user_id", "item_id", "timestamp"]}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (None, "`source` is missing"),
        ({"title": "x", "cores": 5}, "unknown key under `source`: cores"),
        (
            {"title": "x", "files": [{"name": "a.csv", "columns": {"user": "u", "item": "i"}}]},
            "incomplete `source`.*time",
        ),
        ({"title": "x", "expected": {"users": 1}}, "incomplete `source`.*items"),
    ],
)
def test_a_wrong_source_is_refused(values: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_source("x", values, Path("x.yaml"))
