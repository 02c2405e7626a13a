"""What reading and filtering a data set has given, kept beside it for the next run.

The file `<data set>/cache/events.npc` is a SHA-256 digest followed by an .npz archive of plain arrays and JSON text. It
is written beside its place and renamed; one whose digest does not fit is never used. It holds what is the same for
every split and history length, so these are no part of its key; content of the atomic file, data settings and code
are.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import os
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, BinaryIO, Optional

import numpy as np
import recbole
from recbole.utils.argument_list import dataset_arguments

from recbole_prism import __version__
from recbole_prism.config import plain
from recbole_prism.data.files import file_digests, is_no_permission, staging_folder
from recbole_prism.errors import DataError

logger = logging.getLogger("recbole_prism")

FOLDER, FILE = "cache", "events.npc"
# Applied to what is stored, in every run anew
_LATER = {"MAX_ITEM_LIST_LENGTH", "ITEM_LIST_LENGTH_FIELD", "LIST_SUFFIX", "POSITION_FIELD", "NEG_PREFIX"}
_SETTINGS = sorted({*dataset_arguments, "encoding", "numerical_features"} - _LATER)
_PACKAGES = ("recbole", "pandas", "numpy")
_DIGEST_BYTES = hashlib.sha256().digest_size


@dataclass(frozen=True)
class StoredEvents:
    """A data set after reading, filtering, numbering and sorting.

    Attributes:
        items: Item ids, per user chronological, users one after the other. int32 [N]
        times: Their times as read. float64 [N]
        events_of_user: Events per user id. int64 [n_users]
        vocabularies: Names of the fields that share a vocabulary, and its tokens by id.
        fields: For every field in RecBole's order: name, type, source, sequence length, buckets (None where RecBole has
            none).
        notes: Level and text of what was said while reading, to be said again.
    """

    items: np.ndarray
    times: np.ndarray
    events_of_user: np.ndarray
    vocabularies: list[tuple[list[str], np.ndarray]]
    fields: list[list[Any]]
    notes: list[tuple[int, str]]


class EventCache:
    """The cache of one data set under one set of settings.

    Args:
        config: The run's config.
        file: The atomic file.
    """

    def __init__(self, config: Any, file: Path) -> None:
        self.path = file.parent / FOLDER / FILE
        self._name = file.stem
        self._file = file
        self._state = _state(file)
        key = {f"the content of {file.name}": file_digests(file)["sha256"], **_code()}
        key.update({f"the setting {name}": plain(config[name]) for name in _SETTINGS})
        self._key: dict[str, Any] = json.loads(json.dumps(key))

    def load(self) -> Optional[StoredEvents]:
        """What is stored, or None if there is nothing that fits; the log says which and why."""
        if not self.path.exists():
            logger.info("Reading '%s': there is no cache of it yet.", self._name)
            return None
        try:
            with self.path.open("rb") as stream:
                if stream.read(_DIGEST_BYTES) != _digest(stream):
                    raise ValueError("damaged or cut off")
                stream.seek(_DIGEST_BYTES)
                with np.load(stream, allow_pickle=False) as archive:
                    changed = self._changed(_from_bytes(archive["key"]))
                    stored = None if changed else _unpack(archive)
        except (OSError, ValueError, KeyError) as error:
            changed, stored = f"the cache is unusable ({error})", None
        if stored is None:
            logger.info("Rebuilding the cache of '%s' because %s.", self._name, changed)
            return None
        logger.info("Using the cache %s (data_cache: False reads the data set anew).", self.path)
        return stored

    def _changed(self, stored: dict[str, Any]) -> str:
        """What makes a stored key another one, in words; "" if nothing does."""
        names = [name for name in {**stored, **self._key} if stored.get(name) != self._key.get(name)]
        words = []
        for name in names:
            shown = name.startswith(("the content", "the sources"))
            words.append(name if shown else f"{name} ({stored.get(name)!r} -> {self._key.get(name)!r})")
        return f"{', '.join(words)} changed" if words else ""

    def store(self, events: StoredEvents) -> None:
        """Write the cache. A run does without it where that is not possible."""
        try:
            if _state(self._file) != self._state:
                logger.info("'%s' is not cached: its file was changed while it was read.", self._name)
                return
            with staging_folder(self.path.parent) as staging:
                with (staging / FILE).open("w+b") as stream:
                    stream.write(bytes(_DIGEST_BYTES))
                    np.savez(stream, **_pack(events), key=_to_bytes(self._key))
                    stream.seek(_DIGEST_BYTES)
                    digest = _digest(stream)
                    stream.seek(0)
                    stream.write(digest)
                os.replace(staging / FILE, self.path)
        except (DataError, OSError) as error:
            cause = error.__cause__ or error
            level = logging.DEBUG if is_no_permission(cause) else logging.WARNING
            logger.log(level, "'%s' is not cached: %s", self._name, cause)


def is_recboles_own(folder: Path) -> bool:
    """Whether a data set is part of RecBole's installation, where nothing of ours should be written."""
    return Path(recbole.__file__).resolve().parent in folder.resolve().parents


def _state(file: Path) -> tuple[int, int]:
    status = file.stat()
    return status.st_size, status.st_mtime_ns


@functools.cache
def _code() -> dict[str, str]:
    """What a stored result depends on besides data and settings."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for source in [package / "_compat.py", *sorted((package / "data").glob("*.py"))]:
        digest.update(source.read_bytes().replace(b"\r\n", b"\n"))
    versions = {f"the version of {name}": metadata.version(name) for name in _PACKAGES}
    return {"the version of recbole_prism": __version__, "the sources of its data room": digest.hexdigest(), **versions}


def _digest(stream: BinaryIO) -> bytes:
    """SHA-256 of the rest of a stream."""
    digest = hashlib.sha256()
    for block in iter(lambda: stream.read(1 << 20), b""):
        digest.update(block)
    return digest.digest()


def _to_bytes(value: Any) -> np.ndarray:
    return np.frombuffer(json.dumps(value).encode("ascii"), dtype=np.uint8)


def _from_bytes(array: np.ndarray) -> Any:
    return json.loads(array.tobytes())


def _pack(events: StoredEvents) -> dict[str, np.ndarray]:
    text = {
        "vocabularies": [[names, tokens.tolist()] for names, tokens in events.vocabularies],
        "fields": events.fields,
        "notes": events.notes,
    }
    arrays = {"items": events.items, "times": events.times, "events_of_user": events.events_of_user}
    return {**arrays, **{name: _to_bytes(value) for name, value in text.items()}}


def _unpack(archive: Any) -> StoredEvents:
    return StoredEvents(
        items=archive["items"],
        times=archive["times"],
        events_of_user=archive["events_of_user"],
        vocabularies=[(names, np.array(tokens)) for names, tokens in _from_bytes(archive["vocabularies"])],
        fields=_from_bytes(archive["fields"]),
        notes=[(level, text) for level, text in _from_bytes(archive["notes"])],
    )
