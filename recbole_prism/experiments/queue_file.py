"""Queue files: a list of runs in YAML, in the order in which they are to be made."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Mapping, Optional

from recbole_prism import settings_files
from recbole_prism.errors import ConfigError
from recbole_prism.registry import nearest
from recbole_prism.run_store import RunSpec

_TOP = ("defaults", "runs")
_ENTRY = ("name", "model", "dataset", "seeds", "epochs", "recipe", "config_files", "settings")
DEFAULT_SEEDS = (2020,)


def read_queue(path: Path, overrides: Optional[Mapping[str, Any]] = None) -> list[RunSpec]:
    """Read a queue file.

    Args:
        path: The file: `runs`, a list of entries, and `defaults`, settings of all of them. An entry has `model` and
            `dataset`, and may have `name` (default: model-dataset), `seeds` (default: [2020]), `epochs`, `recipe`,
            `config_files` (beside the queue file) and `settings`. Weakest first: recipe, config_files, defaults,
            settings.
        overrides: Settings stronger than those of the file, e.g. of the command line.

    Returns:
        One run per entry and seed, in the file's order.

    Raises:
        ConfigError: Naming what is wrong.
    """
    if not path.is_file():
        raise ConfigError(f"there is no queue file {path}", "docs/experiments.md shows how to write one")
    content = settings_files.load_yaml(path)
    _check_keys(content, _TOP, str(path))
    entries, defaults = content.get("runs"), content.get("defaults") or {}
    if not isinstance(entries, list) or not entries:
        raise ConfigError(f"{path} lists no runs", "write `runs:` and below it one `- model: ...` per configuration")
    if not isinstance(defaults, dict):
        raise ConfigError(f"{path}: defaults is no mapping", "write settings as `key: value` below `defaults:`")
    specs: list[RunSpec] = []
    for number, entry in enumerate(entries, start=1):
        place = f"{path}, run {number}"
        if not isinstance(entry, dict):
            raise ConfigError(f"{place} is no mapping", "write `- model: NAME` with `dataset: NAME` below")
        specs += _specs_of(entry, defaults, overrides or {}, place, path.parent)
    labels = [spec.label for spec in specs]
    twice = next((label for label in labels if labels.count(label) > 1), None)
    if twice:
        raise ConfigError(f"{path}: the run {twice!r} stands twice", "give each configuration its own `name`")
    return specs


def _specs_of(
    entry: Mapping[str, Any], defaults: Mapping[str, Any], overrides: Mapping[str, Any], place: str, folder: Path
) -> list[RunSpec]:
    _check_keys(entry, _ENTRY, place)
    missing = [key for key in ("model", "dataset") if not isinstance(entry.get(key), str)]
    if missing:
        raise ConfigError(f"{place} names no {' and no '.join(missing)}", "write `model: NAME` and `dataset: NAME`")
    own = entry.get("settings") or {}
    files = entry.get("config_files") or []
    seeds = entry.get("seeds", list(DEFAULT_SEEDS))
    if not isinstance(entry.get("recipe") or "", str):
        raise ConfigError(f"{place}: recipe is {entry['recipe']!r}, expected a name", "recipe: PRISM")
    if not isinstance(own, dict):
        raise ConfigError(f"{place}: settings is no mapping", "write settings as `key: value` below `settings:`")
    if not isinstance(files, list) or not all(isinstance(file, str) for file in files):
        raise ConfigError(f"{place}: config_files is {files!r}, expected a list of files", "config_files: [x.yaml]")
    if not isinstance(seeds, list) or not seeds or not all(type(seed) is int for seed in seeds):
        raise ConfigError(f"{place}: seeds is {seeds!r}, expected a list of whole numbers", "seeds: [2020, 2021]")
    reserved = [key for key in ("model", "dataset", "seed") if key in own or key in defaults or key in overrides]
    if reserved:
        raise ConfigError(f"{place}: {reserved[0]} among the settings", "it stands in the entry itself (seeds: [...])")
    if "epochs" in entry:
        if "epochs" in own:
            raise ConfigError(f"{place}: epochs stands twice", "leave one of them out")
        own = {**own, "epochs": entry["epochs"]}
    name = str(entry.get("name") or f"{entry['model']}-{entry['dataset']}".replace(":", "-"))
    settings_files.check_name("name", name)
    paths = [str(settings_files.recipe_path(entry["dataset"], entry["recipe"]))] if entry.get("recipe") else []
    paths += [str(folder / file) for file in files]
    settings = {**defaults, **own, **overrides}
    return [RunSpec(name, entry["model"], entry["dataset"], seed, settings, tuple(paths)) for seed in seeds]


def _check_keys(content: Mapping[str, Any], known: tuple[str, ...], place: str) -> None:
    for key in content:
        if key not in known:
            guess = nearest(key, known)
            raise ConfigError(
                f"{place}: unknown key {key!r}",
                f"did you mean {guess}?" if guess else f"known: {', '.join(known)}; a setting stands below `settings:`",
            )
