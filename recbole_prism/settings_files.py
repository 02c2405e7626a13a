"""YAML values and the folder `properties/`: the only place that turns text into settings. Nothing is ever evaluated."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Hashable, Optional, Union

import yaml

from recbole_prism.errors import ConfigError


class SettingsLoader(yaml.SafeLoader):
    """YAML 1.2's plain values: `1e-3` is a number; `yes`, `012`, `1_000` and `12:30` are text. PyYAML's stay."""

    yaml_implicit_resolvers: dict[Any, Any] = {}  # start from none, not from YAML 1.1's
    yaml_constructors = {  # of plain values; all else is refused as an unknown tag
        tag: construct
        for tag, construct in yaml.SafeLoader.yaml_constructors.items()
        if tag is None or tag.rpartition(":")[2] in ("null", "bool", "int", "float", "str", "seq", "map")
    }

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        """As PyYAML's, but whole at once (so nothing can hold itself), naming the place of text that a tag refuses."""
        try:
            return super().construct_object(node, deep=True)
        except (ValueError, KeyError) as error:
            kind = node.tag.rpartition(":")[2]
            raise _refusal(f"{str(node.value)[:40]!r} is not of the kind {kind}", node) from error

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        """Refuse a key given twice, of which PyYAML would silently keep the last."""
        if not isinstance(node, yaml.MappingNode):
            raise _refusal("expected a mapping", node)
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = [key for key in keys if keys.count(key) > 1]
        if twice:
            raise _refusal(f"the key {twice[0]!r} stands twice", node)
        if "<<" in keys:
            raise _refusal("YAML's merge key << is not supported, write the keys out", node)
        return super().construct_mapping(node, deep=deep)


def _refusal(problem: str, node: yaml.Node) -> yaml.constructor.ConstructorError:
    return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


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
    except (yaml.YAMLError, RecursionError) as error:
        cure = "quote text with special characters: --key='\"a: b\"'"
        raise ConfigError(f"cannot read the value {text[:60]!r}: {_reason(error)}", cure) from error


def parse_text(text: str) -> Optional[str]:
    """One value of a setting that is text: `~` and YAML's quotes count, all else is meant as written: "[3,inf)"."""
    try:
        value = yaml.load(text, Loader=SettingsLoader)
    except (yaml.YAMLError, RecursionError):
        return text
    return value if value is None or isinstance(value, str) else text


def number_in(text: str) -> Union[int, float, None]:
    """The number that a text would be without its quotes, or None."""
    try:
        value = yaml.load(text, Loader=SettingsLoader)
    except (yaml.YAMLError, RecursionError):
        return None
    return value if type(value) in (int, float) else None


def load_yaml(path: Path) -> dict[str, Any]:
    """Read a settings file; an empty one gives an empty dict.

    Raises:
        ConfigError: There is no such file, it is not YAML, or it does not hold `key: value` lines.
    """
    if not path.is_file():
        raise ConfigError(f"there is no settings file {path}", "--config_files takes YAML files, separated by spaces")
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), Loader=SettingsLoader)
    except (yaml.YAMLError, RecursionError, UnicodeDecodeError) as error:
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
    check_name("dataset", dataset)
    check_name("recipe", name)
    folder = properties_folder() / "recipe" / dataset
    path = folder / f"{name}.yaml"
    if not path.is_file():
        known = sorted(file.stem for file in folder.glob("*.yaml"))
        cure = f"recipes: {', '.join(known)}" if known else "it has none"
        raise ConfigError(f"there is no recipe {name!r} for {dataset}", cure)
    return path


def check_name(kind: str, name: str) -> None:
    """Refuse a path where a name is due.

    Raises:
        ConfigError: The name is empty or would lead to another folder.
    """
    if name.strip(". ") == "" or any(mark in name for mark in "/\\\0"):
        cure = "write the name alone" + ("; data_path is the folder that holds it" if kind == "dataset" else "")
        raise ConfigError(f"{kind} is {name!r}, which is no name of a folder or file", cure)


def _reason(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem:
        mark = error.problem_mark
        return error.problem if mark is None else f"{error.problem} (line {mark.line + 1}, column {mark.column + 1})"
    return str(error)
