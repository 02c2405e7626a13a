"""Every recipe parses, fits its data set and model, and starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from recbole_prism.config import Config
from recbole_prism.quick_start import run
from recbole_prism.settings_files import load_yaml, properties_folder

FOLDER = properties_folder() / "recipe"
RECIPES = sorted(FOLDER.glob("*/*.yaml"))


def model_of(recipe: Path) -> str:
    """A recipe is called <Model>.yaml or <Model>-<what>.yaml."""
    return recipe.stem.partition("-")[0]


def test_there_are_recipes_and_nothing_else() -> None:
    assert RECIPES and {path for path in FOLDER.rglob("*") if path.is_file()} == set(RECIPES)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_recipe_parses_for_its_model_and_known_data_set(recipe: Path) -> None:
    assert (properties_folder() / "dataset" / f"{recipe.parent.name}.yaml").is_file()
    config = Config(model_of(recipe), recipe.parent.name, [str(recipe)], require_data=False)
    values = load_yaml(recipe)
    assert values and not {"data_path", "checkpoint_dir", "seed"} & set(values)
    for key in values:
        assert config.origin[key] == f"recipe {recipe.parent.name}/{recipe.name}"


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_recipe_starts(recipe: Path, toy_path: Path, tmp_path: Path) -> None:
    """On other data, cut short; all that it says of the model and its training stays."""
    short = {"epochs": 1, "MAX_ITEM_LIST_LENGTH": 5}
    places = {"data_path": str(toy_path), "checkpoint_dir": str(tmp_path), "device": "cpu", "n_threads": 1}
    result = run(model_of(recipe), "cyclic", [str(recipe)], {**short, **places})
    assert result["n_epochs"] == 1
