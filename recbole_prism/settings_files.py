"""YAML values and the folder `properties/`: the only place that turns text into settings. Nothing is ever evaluated."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Hashable, Optional

import yaml

from recbole_prism.errors import ConfigError


class SettingsLoader(yaml.SafeLoader):
    """YAML 1.2's plain values: `1e-3` is a number; `yes`, `012`, `1_000` and `12:30` are text. PyYAML's stay."""

    yaml_implicit_resolvers: dict[Any, Any] = {}  # start from none, not from YAML 1.1's

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        """Refuse a key given twice, of which PyYAML would silently keep the last."""
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = [key for key in keys if keys.count(key) > 1]
        if twice:
            raise yaml.constructor.ConstructorError(None, None, f"the key {twice[0]!r} stands twice", node.start_mark)
        return super().construct_mapping(node, deep=deep)


_DECIMAL = r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+"
for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|None|", ["~", "n", "N", ""]),  # None as well: RecBole's users write it
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?(0|[1-9][0-9]*)", list("-+0123456789")),
    ("float", rf"{_DECIMAL}|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", list("-+.0123456789")),
):
    SettingsLoader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), _first)


def parse_value(text: str) -> Any:
    """One value as written on the command line: "1e-3" -> 0.001, "[5,10]" -> [5, 10], "~" -> None.

    Raises:
        ConfigError: The text is not YAML.
    """
    try:
        return yaml.load(text, Loader=SettingsLoader)
    except yaml.YAMLError as error:
        cure = "quote text with special characters: --key='\"a: b\"'"
        raise ConfigError(f"cannot read the value {text!r}: {_reason(error)}", cure) from error


def parse_text(text: str) -> Optional[str]:
    """One value of a setting that is text: `~` and YAML's quotes count, all else is meant as written: "[3,inf)"."""
    try:
        value = yaml.load(text, Loader=SettingsLoader)
    except yaml.YAMLError:
        return text
    return value if value is None or isinstance(value, str) else text


def load_yaml(path: Path) -> dict[str, Any]:
    """Read a settings file; an empty one gives an empty dict.

    Raises:
        ConfigError: There is no such file, it is not YAML, or it does not hold `key: value` lines.
    """
    if not path.is_file():
        raise ConfigError(f"there is no settings file {path}", "--config_files takes YAML files, separated by spaces")
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), Loader=SettingsLoader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        cure = 'quote text with special characters: user_inter_num_interval: "[5,inf)"'
        raise ConfigError(f"{path} cannot be read as YAML: {_reason(error)}", cure) from error
    if values is None:
        return {}
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise ConfigError(f"{path} does not hold settings", "write one `key: value` per line")
    return values


def properties_folder() -> Path:
    """The folder `properties/`: inside an installed package, beside it in a checkout."""
    package = Path(__file__).resolve().parent
    for folder in (package / "properties", package.parent / "properties"):
        if (folder / "overall.yaml").is_file():
            return folder
    raise ConfigError(f"the folder properties/ is missing beside {package}", "install recbole-prism again")


def recipe_path(dataset: str, name: str) -> Path:
    """The file of a recipe, e.g. ("ml-100k", "PRISM").

    Raises:
        ConfigError: There is none of that name for the data set.
    """
    folder = properties_folder() / "recipe" / dataset
    path = folder / f"{name}.yaml"
    if not path.is_file():
        known = sorted(file.stem for file in folder.glob("*.yaml"))
        cure = f"recipes: {', '.join(known)}" if known else "it has none"
        raise ConfigError(f"there is no recipe {name!r} for {dataset}", cure)
    return path


def _reason(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem:
        mark = error.problem_mark
        return error.problem if mark is None else f"{error.problem} (line {mark.line + 1}, column {mark.column + 1})"
    return str(error)
