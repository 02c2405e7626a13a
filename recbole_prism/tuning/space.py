"""Search spaces: the files `properties/search/<Model>.yaml`, and drawing settings from them."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterator, Mapping, Union

import numpy as np

from recbole_prism import settings_files
from recbole_prism.config import MACHINE_KEYS, Config
from recbole_prism.errors import ConfigError

UNIFORM, LOGUNIFORM, INT = "uniform", "loguniform", "int"
_KINDS = (UNIFORM, LOGUNIFORM, INT)
_FORM = "write a list of values, or {type: uniform|loguniform|int, low: 0.1, high: 0.5}"


@dataclass(frozen=True)
class Listed:
    """A setting that takes one of some values.

    Attributes:
        values: At least one, all different.
    """

    values: tuple[Any, ...]

    def at(self, share: float) -> Any:
        """The value at a share in [0, 1) of the list."""
        return self.values[int(share * len(self.values))]

    def extremes(self) -> tuple[Any, ...]:
        """Values that show whether the setting accepts all: here every one."""
        return self.values


@dataclass(frozen=True)
class Range:
    """A setting that takes any number of a range.

    Attributes:
        kind: "uniform", "loguniform" (even in the logarithm) or "int" (whole numbers).
        low: Smallest value.
        high: Largest value, included.
    """

    kind: str
    low: float
    high: float

    def at(self, share: float) -> Union[int, float]:
        """The value at a share in [0, 1) of the range: its inverse distribution function."""
        if self.kind == INT:
            return int(self.low) + int(share * (int(self.high) - int(self.low) + 1))
        if self.kind == LOGUNIFORM:
            return math.exp(math.log(self.low) + share * (math.log(self.high) - math.log(self.low)))
        return self.low + share * (self.high - self.low)

    def extremes(self) -> tuple[Any, ...]:
        """Both ends."""
        return (self.low, self.high)


Dimension = Union[Listed, Range]


@dataclass(frozen=True)
class Space:
    """Settings to be searched, in the file's order.

    Attributes:
        dimensions: By key.
    """

    dimensions: Mapping[str, Dimension]

    @classmethod
    def of(cls, values: Mapping[str, Any], place: str) -> Space:
        """Read the contents of a search file.

        Args:
            values: Key -> list or {type, low, high}.
            place: For messages.

        Raises:
            ConfigError: A value has another form, or nothing is to be searched.
        """
        space = cls({key: _dimension(value, f"{place}: {key}") for key, value in values.items()})
        if not space.dimensions:
            raise ConfigError(f"{place}: nothing is to be searched", f"one line per key; {_FORM}")
        return space

    @classmethod
    def load(cls, path: Path, changes: Mapping[str, Any]) -> Space:
        """Read a search file, with changes to it.

        Args:
            path: The file.
            changes: Key -> list or {type, low, high}, in place of the file's or in addition; None takes a key out.
        """
        values = {**settings_files.load_yaml(path), **changes}
        return cls.of({key: value for key, value in values.items() if value is not None}, str(path))

    @property
    def size(self) -> float:
        """Number of different settings; infinity with a range of real numbers."""
        size = 1.0
        for dimension in self.dimensions.values():
            if isinstance(dimension, Listed):
                size *= len(dimension.values)
            else:
                size *= int(dimension.high) - int(dimension.low) + 1 if dimension.kind == INT else math.inf
        return size

    def grid(self, seed: int) -> list[dict[str, Any]]:
        """Every combination, in an order shuffled by the seed: a grid stopped half way has seen all parts of it.

        Raises:
            ConfigError: A range of real numbers has no grid.
        """
        columns = []
        for key, dimension in self.dimensions.items():
            if isinstance(dimension, Range) and dimension.kind != INT:
                raise ConfigError(
                    f"{key} is a range, of which there is no grid", "list its values, or use --searcher=random"
                )
            if isinstance(dimension, Listed):
                columns.append(list(dimension.values))
            else:
                columns.append(list(range(int(dimension.low), int(dimension.high) + 1)))
        points = [dict(zip(self.dimensions, point)) for point in itertools.product(*columns)]
        return [points[place] for place in np.random.default_rng(seed).permutation(len(points))]

    def samples(self, seed: int) -> Iterator[dict[str, Any]]:
        """Independent draws without end; each key evenly over its values or its range."""
        draw = np.random.default_rng(seed)
        while True:
            shares = draw.random(len(self.dimensions))
            yield {key: self.dimensions[key].at(float(share)) for key, share in zip(self.dimensions, shares)}

    def check(self, settings: Mapping[str, Any]) -> None:
        """Refuse a space with a value that no run would accept, before hours are spent on the others.

        Args:
            settings: All other settings of the search.

        Raises:
            ConfigError: A key is unknown or has nothing to do with results, or a value is out of its range.
        """
        for key, dimension in self.dimensions.items():
            if key in MACHINE_KEYS or key in ("model", "dataset"):
                raise ConfigError(f"{key} cannot be searched", "a search varies settings that change the result")
            for value in dimension.extremes():
                Config(config_dict={**settings, key: value})

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as in a search file."""
        return {
            key: list(dimension.values)
            if isinstance(dimension, Listed)
            else {"type": dimension.kind, "low": dimension.low, "high": dimension.high}
            for key, dimension in self.dimensions.items()
        }


def space_path(model: str) -> Path:
    """The search file of a model.

    Raises:
        ConfigError: There is none.
    """
    folder = settings_files.properties_folder() / "search"
    path = folder / f"{model}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in folder.glob("*.yaml")))
        raise ConfigError(
            f"there is no search space for {model}", f"--space=FILE names your own; there is one for {known}"
        )
    return path


def _dimension(value: Any, place: str) -> Dimension:
    if isinstance(value, list) and value:
        if any(value.count(element) > 1 for element in value):
            raise ConfigError(f"{place} lists a value twice: {value}", "list each once")
        return Listed(tuple(value))
    if not isinstance(value, Mapping) or set(value) != {"type", "low", "high"} or value["type"] not in _KINDS:
        raise ConfigError(f"{place} is {value!r}", _FORM)
    kind, low, high = value["type"], value["low"], value["high"]
    wanted = (int,) if kind == INT else (int, float)
    if not all(isinstance(end, wanted) and not isinstance(end, bool) for end in (low, high)) or not low < high:
        raise ConfigError(f"{place}: low {low!r}, high {high!r}", "two numbers, low below high; whole ones for int")
    if kind == LOGUNIFORM and low <= 0:
        raise ConfigError(f"{place}: low {low!r}", "a logarithmic range begins above 0")
    return Range(kind, low, high)
