"""Where raw files of known data sets come from and how to read them: `source:` in properties/dataset/<name>.yaml."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Mapping, Optional

from recbole_prism.data.containers import bare_name
from recbole_prism.data.kcore import Counts
from recbole_prism.data.readers import Table
from recbole_prism.errors import ConfigError, DataError
from recbole_prism.settings_files import load_yaml, properties_folder


@dataclass(frozen=True)
class RawFile:
    """One raw file that a data set can be made from.

    Attributes:
        name: File name as published; also accepted without .gz, or as the unpacked member of an archive.
        table: How to read it.
        url: Public address; "" where a licence must be accepted on a page first.
        verified: Whether the address has been downloaded from by the authors.
        member: File name of the member inside an archive.
        size: Bytes, where known.
        checksum: "md5:..." or "sha256:...", where known; of the file as published.
        core: The file itself is already filtered to this k-core; 0 for a complete file.
        rows: Interactions in the file, where known.
    """

    name: str
    table: Table
    url: str = ""
    verified: bool = False
    member: str = ""
    size: Optional[int] = None
    checksum: str = ""
    core: int = 0
    rows: Optional[int] = None

    def local_names(self) -> list[str]:
        """Names under which the file is looked for."""
        names = [self.name, bare_name(self.name)]
        if self.member:
            names.append(self.member)
        return list(dict.fromkeys(names))


@dataclass(frozen=True)
class Source:
    """Everything that turns a known name into an atomic file.

    Attributes:
        name: Name of the data set.
        title: Name of the raw collection.
        page: Page that describes it.
        licence: Short note on its terms.
        manual: How to get the file by hand, where it cannot be downloaded directly; "" otherwise.
        files: Raw files it can be made from, the preferred one first.
        core: k of the iterated k-core.
        since: First time that is kept, ISO 8601, UTC; "" for all.
        min_rating: Least rating that is kept; None for all.
        expected: Counts after filtering that somebody has published, or None.
        expected_from: Who.
        bundled: The data set comes with RecBole, there is nothing to prepare.
    """

    name: str
    title: str
    page: str = ""
    licence: str = ""
    manual: str = ""
    files: tuple[RawFile, ...] = ()
    core: int = 5
    since: str = ""
    min_rating: Optional[float] = None
    expected: Optional[Counts] = None
    expected_from: str = ""
    bundled: bool = False


def known_sources() -> tuple[str, ...]:
    """Names of all data sets that can be prepared, sorted."""
    return tuple(sorted(path.stem for path in (properties_folder() / "dataset").glob("*.yaml")))


def is_known(name: str) -> bool:
    """Whether `name` can be prepared."""
    return name in known_sources()


def load_source(name: str) -> Source:
    """Read the source of a known data set.

    Raises:
        DataError: If the name is not known; the message has the nearest one.
        ConfigError: If its YAML is wrong.
    """
    known = known_sources()
    if name not in known:
        near = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise DataError(
            f"no data set {name!r} is known",
            f"{hint}Known: {', '.join(known)}. For your own file: prepare --from FILE --name {name}",
        )
    path = properties_folder() / "dataset" / f"{name}.yaml"
    return parse_source(name, load_yaml(path).get("source"), path)


def parse_source(name: str, values: Any, path: Path) -> Source:
    """Build a `Source` from the mapping under `source:`.

    Raises:
        ConfigError: For a missing or unknown key.
    """
    if not isinstance(values, Mapping):
        raise ConfigError(f"{path}: the key `source` is missing or not a mapping")
    values = dict(values)
    expected = dict(values.pop("expected", None) or {})
    files = tuple(_parse_file(entry, path) for entry in values.pop("files", ()))
    expected_from = str(expected.pop("from", ""))
    counts = _build(Counts, expected, path) if expected else None
    return _build(
        Source, {**values, "name": name, "files": files, "expected": counts, "expected_from": expected_from}, path
    )


def _parse_file(entry: Mapping[str, Any], path: Path) -> RawFile:
    entry = dict(entry)
    table = {**entry.pop("columns", {})}
    table.update({key: entry.pop(key) for key in ("format", "delimiter", "time_unit") if key in entry})
    table["header"] = tuple(entry.pop("header", ()))
    return _build(RawFile, {**entry, "table": _build(Table, table, path)}, path)


def _build(kind: Any, values: Mapping[str, Any], path: Path) -> Any:
    known = {field.name for field in fields(kind)}
    unknown = sorted(set(values) - known)
    if unknown:
        raise ConfigError(
            f"{path}: unknown key under `source`: {', '.join(unknown)}", f"known: {', '.join(sorted(known))}"
        )
    try:
        return kind(**values)
    except TypeError as error:
        raise ConfigError(f"{path}: incomplete `source`: {error}") from error


def find_raw(source: Source, place: Path) -> Optional[tuple[RawFile, Path]]:
    """Look for a raw file of the source.

    Args:
        source: The data set's source.
        place: A folder to look into (also one level deeper), or the file itself.

    Returns:
        The entry and the file, or None if a folder holds none.

    Raises:
        DataError: If `place` does not exist or is a file of another name.
    """
    if place.is_dir():
        for entry in source.files:
            for name in entry.local_names():
                for path in (place / name, *sorted(place.glob(f"*/{name}"))):
                    if path.is_file():
                        return entry, path
        return None
    if not place.exists():
        raise DataError(f"{place} does not exist", "--raw takes the raw file or the folder that holds it")
    for entry in source.files:
        if place.name in entry.local_names():
            return entry, place
    raise DataError(f"{place.name} is not a raw file of {source.name}", f"it must be named {_names(source)}")


def how_to_get(source: Source, folder: Path) -> str:
    """What the user has to do by hand: which file, from where, and where to put it."""
    first = source.files[0]
    where = source.manual or f"download {first.url or 'it'} (see {source.page})"
    return f"{where}; put {_names(source)} into {folder} (or name its place with --raw) and start again"


def _names(source: Source) -> str:
    first, *others = [entry.name for entry in source.files]
    return f"{first} (or {', '.join(others)})" if others else first
