"""Search spaces: the file format, the grid, the draws, and what is refused before a trial starts."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from recbole_prism import registry, settings_files
from recbole_prism.config import Config
from recbole_prism.errors import ConfigError
from recbole_prism.tuning.space import Listed, Range, Space, space_path

SPACE_FILES = sorted((settings_files.properties_folder() / "search").glob("*.yaml"))


def space(**values: Any) -> Space:
    return Space.of(values, "test")


def test_prism_has_the_published_space() -> None:
    found = Space.load(space_path("PRISM"), {})
    assert found.to_dict() == {
        "n_lenses": [2, 4, 6, 8],
        "aux_weight": [0.01, 0.05, 0.1, 0.3, 0.5],
        "cl_temperature": [0.05, 0.1, 0.7, 1.0, 2.0],
    }
    assert found.size == 100


@pytest.mark.parametrize("path", SPACE_FILES, ids=lambda path: path.stem)
def test_every_space_file_belongs_to_a_model_that_accepts_all_of_it(path: Path) -> None:
    assert path.stem in registry.list_models()
    dimensions = Space.load(path, {}).dimensions.items()
    for share in (0.0, 0.4, 0.7, 0.999):
        Config(path.stem, "ml-100k", config_dict={key: dimension.at(share) for key, dimension in dimensions})


def test_grid_holds_every_combination_once_in_an_order_of_the_seed() -> None:
    grid = space(a=[1, 2], b=["x", "y", "z"], c={"type": "int", "low": 0, "high": 1}).grid(seed=1)
    wanted = {(a, b, c) for a, b, c in itertools.product([1, 2], "xyz", [0, 1])}
    assert {(point["a"], point["b"], point["c"]) for point in grid} == wanted and len(grid) == 12
    assert grid == space(a=[1, 2], b=["x", "y", "z"], c={"type": "int", "low": 0, "high": 1}).grid(seed=1)
    assert grid != space(a=[1, 2], b=["x", "y", "z"], c={"type": "int", "low": 0, "high": 1}).grid(seed=2)


def test_grid_of_a_real_range_is_refused() -> None:
    with pytest.raises(ConfigError, match="no grid"):
        space(a={"type": "uniform", "low": 0, "high": 1}).grid(seed=0)


def test_ranges_are_inverse_distribution_functions() -> None:
    assert Range("uniform", 2.0, 4.0).at(0.25) == 2.5
    assert Range("loguniform", 1e-4, 1e-2).at(0.5) == pytest.approx(1e-3)
    whole = Range("int", 2, 4)
    assert [whole.at(share) for share in (0.0, 0.3, 0.34, 0.65, 0.67, 0.999)] == [2, 2, 3, 3, 4, 4]
    assert [Listed(("a", "b")).at(share) for share in (0.0, 0.49, 0.5, 0.99)] == ["a", "a", "b", "b"]


def test_samples_are_even_and_the_same_for_a_seed() -> None:
    one, other = (list(itertools.islice(space(a=[1, 2, 3, 4]).samples(seed=5), 4000)) for _ in range(2))
    assert one == other
    counts = Counter(point["a"] for point in one)
    assert all(abs(count - 1000) < 5 * math.sqrt(4000 * 0.25 * 0.75) for count in counts.values())  # 5 deviations


def test_size_counts_settings() -> None:
    assert space(a=[1, 2, 3], b={"type": "int", "low": 5, "high": 8}).size == 12
    assert space(a=[1], b={"type": "loguniform", "low": 1, "high": 2}).size == math.inf


@pytest.mark.parametrize(
    "value",
    [
        [],
        3,
        "abc",
        [1, 1],
        {"type": "uniform", "low": 0},
        {"type": "normal", "low": 0, "high": 1},
        {"type": "uniform", "low": 1, "high": 1},
        {"type": "loguniform", "low": 0, "high": 1},
        {"type": "int", "low": 0.5, "high": 2},
        {"type": "int", "low": False, "high": True},
    ],
    ids=str,
)
def test_other_forms_are_refused_by_key(value: Any) -> None:
    with pytest.raises(ConfigError, match="some_key"):
        space(some_key=value)


def test_changes_replace_add_and_take_out(tmp_path: Path) -> None:
    file = tmp_path / "space.yaml"
    file.write_text("a: [1, 2]\nb: [3]\n", encoding="utf-8")
    assert Space.load(file, {"a": [7], "b": None, "c": [1, 5]}).to_dict() == {"a": [7], "c": [1, 5]}
    with pytest.raises(ConfigError, match="nothing is to be searched"):
        Space.load(file, {"a": None, "b": None})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"n_lenses": [4, 1]}, "n_lenses"),
        ({"hidden_dropout_prob": {"type": "uniform", "low": 0.0, "high": 1.5}}, "hidden_dropout_prob"),
        ({"n_lense": [4]}, "n_lense"),
        ({"seed": [1, 2]}, "seed cannot be searched"),
        ({"dataset": ["a"]}, "dataset cannot be searched"),
    ],
)
def test_values_that_no_run_accepts_are_refused_before_the_first_trial(values: dict[str, Any], message: str) -> None:
    settings = Config("PRISM", "ml-100k").resolved()
    with pytest.raises(ConfigError, match=message):
        space(**values).check(settings)


def test_a_model_without_a_space_is_told_what_to_do() -> None:
    with pytest.raises(ConfigError, match="no search space for NoSuchModel"):
        space_path("NoSuchModel")
