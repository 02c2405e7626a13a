"""Raw file -> atomic file: find or download, read, filter, sort, write, compare, remember what was done."""

from __future__ import annotations

import json
import logging
import os
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Mapping, Optional, Union

import numpy as np
import pandas as pd

from recbole_prism.config import Config
from recbole_prism.data.atomic_file import check_tokens, write_interactions
from recbole_prism.data.download import check_file, download
from recbole_prism.data.event_store import EventStore, Vocabulary
from recbole_prism.data.files import file_digests, staging_folder, writing_errors
from recbole_prism.data.kcore import Counts, iterated_core
from recbole_prism.data.manifest import SCHEMA_VERSION, compare_counts, is_current, manifest_path, read_manifest
from recbole_prism.data.readers import Table, read_events
from recbole_prism.data.sources import RawFile, Source, find_raw, how_to_get, is_known, load_source
from recbole_prism.errors import DataError
from recbole_prism.progress import progress

logger = logging.getLogger("recbole_prism")

CONVERTER_VERSION = 1  # raised when the same raw file would give another atomic file


@dataclass(frozen=True)
class Prepared:
    """Result of a preparation.

    Attributes:
        path: The atomic file; None for a data set that RecBole brings along.
        manifest: What was done (empty for None).
        was_current: Nothing had to be done.
    """

    path: Optional[Path]
    manifest: dict[str, Any]
    was_current: bool


@dataclass(frozen=True)
class Plan:
    """What is to be done with one raw file.

    Attributes:
        name: Name of the data set to write.
        raw: The raw file.
        table: How to read it.
        member: File name of the member inside an archive.
        core: k of the iterated k-core; 0 for none.
        since: First time that is kept, ISO 8601 (UTC); "" for all.
        min_rating: Least rating that is kept; None for all.
        expected: Published counts, or None.
        expected_from: Whose.
        raw_rows: Known number of interactions in the raw file, or None.
        origin: Address and page of the raw file, for the manifest.
    """

    name: str
    raw: Path
    table: Table
    member: str = ""
    core: int = 0
    since: str = ""
    min_rating: Optional[float] = None
    expected: Optional[Counts] = None
    expected_from: str = ""
    raw_rows: Optional[int] = None
    origin: Optional[dict[str, Any]] = None

    def settings(self) -> dict[str, Any]:
        """All that decides the content of the atomic file, as plain values."""
        table = json.loads(json.dumps(asdict(self.table)))
        return {
            "converter": CONVERTER_VERSION,
            "table": table,
            "core": self.core,
            "since": self.since,
            "min_rating": self.min_rating,
        }


def ensure_prepared(name: str, folder: Path, show_progress: bool = False) -> bool:
    """Make the atomic file of a known data set if it is not there.

    Args:
        name: Name of the data set.
        folder: Its folder (<data_path>/<name>).
        show_progress: Whether to show bars.

    Returns:
        Whether the file is there now; False for a name that is not known.

    Raises:
        DataError: If it is known but cannot be made, with the file to get and the place to put it.
    """
    if (folder / f"{name}.inter").is_file():
        return True
    if not is_known(name) or load_source(name).bundled:
        return False
    logger.info("%s is not there yet: preparing it in %s", name, folder)
    return prepare_known(name, folder.parent, show_progress=show_progress).path is not None


def config_with_data(
    model: Union[str, type, None] = None,
    dataset: Optional[str] = None,
    config_file_list: Optional[list[str]] = None,
    config_dict: Optional[Mapping[str, Any]] = None,
    command_line: Optional[Mapping[str, Any]] = None,
) -> Config:
    """A `Config` whose data is there: a known data set without its atomic file is prepared first.

    Args:
        model, dataset, config_file_list, config_dict, command_line: As for `Config`.

    Raises:
        DataError: If there is no such data, with what can be done about it.
        ConfigError, ModelError: As `Config`.
    """
    given = (model, dataset, config_file_list, config_dict, command_line)
    config = Config(*given, require_data=False)
    if not config["benchmark_filename"]:
        ensure_prepared(config["dataset"], Path(config["data_path"]), bool(config["show_progress"]))
    return Config(*given)  # again: this time it looks at the file


def prepare_known(
    name: str,
    data_path: Path,
    *,
    raw: Optional[Path] = None,
    core: Optional[int] = None,
    new_name: str = "",
    overwrite: bool = False,
    show_progress: bool = False,
) -> Prepared:
    """Prepare a data set that properties/dataset/ describes.

    Args:
        name: Its name, e.g. "amazon-toys".
        data_path: Folder that holds the data sets.
        raw: The raw file or a folder with it; default <data_path>/<name>/raw, where a download goes as well.
        core: Another k than the usual one (0: no filter). The result is then called <name>-core<k>, unless `new_name`
            is given.
        new_name: Name of the result.
        overwrite: Replace an atomic file that was made in another way.
        show_progress: Whether to show bars.

    Raises:
        DataError: See the message; nothing has then been changed.
    """
    source = load_source(name)
    if source.bundled:
        return Prepared(None, {}, True)
    core = source.core if core is None else core
    if core != source.core:
        new_name = new_name or f"{name}-core{core}"
    source = replace(source, files=_files_for_core(source, core))
    entry, path = _get_raw(source, raw, data_path / name / "raw", show_progress)
    if path.name == entry.name:
        check_file(path, entry.size, entry.checksum)
    plan = Plan(
        name=new_name or name,
        raw=path,
        table=entry.table,
        member=entry.member if path.name == entry.name else "",
        core=core,
        since=source.since,
        min_rating=source.min_rating,
        expected=source.expected if core == source.core else None,
        expected_from=source.expected_from,
        raw_rows=entry.rows,
        origin={"title": source.title, "page": source.page, "url": entry.url, "url_verified": entry.verified},
    )
    return execute(plan, data_path, overwrite=overwrite, show_progress=show_progress)


def _files_for_core(source: Source, core: int) -> tuple[RawFile, ...]:
    """A file that is already a 5-core cannot give a smaller core."""
    usable = tuple(entry for entry in source.files if entry.core <= core)
    if not usable:
        raise DataError(
            f"all raw files of {source.name} are already {min(entry.core for entry in source.files)}-core",
            f"--core {core} needs a complete file",
        )
    return usable


def _get_raw(source: Source, raw: Optional[Path], folder: Path, show_progress: bool) -> tuple[RawFile, Path]:
    found = find_raw(source, raw or folder) if raw is not None or folder.is_dir() else None
    if found is not None:
        return found
    if raw is not None:
        raise DataError(f"{raw} holds no raw file of {source.name}", how_to_get(source, raw))
    entry = source.files[0]
    if not entry.url:
        raise DataError(f"the raw file of {source.name} cannot be downloaded by a program", how_to_get(source, folder))
    if not entry.verified:
        logger.warning("the address %s has not been tried by the authors", entry.url)
    try:
        download(entry.url, folder / entry.name, size=entry.size, checksum=entry.checksum, show_progress=show_progress)
    except DataError as error:
        raise DataError(error.cause, f"{error.cure}. By hand: {how_to_get(source, folder)}") from error
    return entry, folder / entry.name


def execute(plan: Plan, data_path: Path, *, overwrite: bool = False, show_progress: bool = False) -> Prepared:
    """Carry out a plan: <data_path>/<name>/<name>.inter and its manifest, both or none.

    Args:
        plan: What to do.
        data_path: Folder that holds the data sets.
        overwrite: Replace an atomic file that was made in another way.
        show_progress: Whether to show a bar.

    Raises:
        DataError: See the message; nothing has then been changed.
    """
    folder = data_path / plan.name
    target = folder / f"{plan.name}.inter"
    sha256 = file_digests(plan.raw)["sha256"]
    if target.exists() and not overwrite:
        manifest = read_manifest(folder, plan.name)
        if manifest is not None and is_current(manifest, target, plan.settings(), sha256):
            return Prepared(target, manifest, True)
        raise DataError(
            f"{target} exists and was not made from this file with these settings",
            "--overwrite replaces it, --name writes another data set",
        )
    with staging_folder(folder) as staging, writing_errors(folder):
        manifest = _convert(plan, staging, sha256, show_progress)
        os.replace(staging / "inter", target)
        os.replace(staging / "manifest", manifest_path(folder, plan.name))
    return Prepared(target, manifest, False)


def _convert(plan: Plan, staging: Path, sha256: str, show_progress: bool) -> dict[str, Any]:
    """Write the files "inter" and "manifest" into the staging folder."""
    users, items = Vocabulary(), Vocabulary()
    store = EventStore(staging)
    n_rows = _load(plan, store, users, items, show_progress)
    steps = [_step("raw", Counts(len(users), len(items), n_rows))]
    if plan.since or plan.min_rating is not None:
        steps.append(_step(_filter_name(plan), _occurring(store, len(users), len(items))))
    core = iterated_core(store.chunks, len(users), len(items), plan.core)
    steps += [_step(f"{plan.core}-core, round {number}", counts) for number, counts in enumerate(core.rounds, start=1)]
    if not core.keep_user.any():
        raise DataError(
            f"nothing is left of {n_rows:,} interactions of {plan.raw.name} after: {steps[-1]['step']}",
            "use a smaller --core (0 for none), or check that the right columns are read as user and item",
        )
    user_tokens, item_tokens = users.tokens(), items.tokens()
    check_tokens([token for token, keep in zip(user_tokens, core.keep_user) if keep], plan.table.user)
    check_tokens([token for token, keep in zip(item_tokens, core.keep_item) if keep], plan.table.item)
    sorted_events = store.sorted_chunks(core.keep_user, core.keep_item)
    written = write_interactions(staging / "inter", sorted_events, user_tokens, item_tokens)
    steps.append(_step("written", written.counts))
    inter_sha256 = file_digests(staging / "inter")["sha256"]
    manifest = {
        "schema_version": SCHEMA_VERSION,
        "name": plan.name,
        "source": {
            "file": plan.raw.name,
            "size": plan.raw.stat().st_size,
            "sha256": sha256,
            **(plan.origin or {}),
        },
        "settings": plan.settings(),
        "steps": steps,
        "result": {
            **asdict(written.counts),
            "tied_events": written.tied_events,
            "users_tied_at_end": written.users_tied_at_end,
            "sha256": inter_sha256,
        },
        "notes": _notes(plan, n_rows, written.counts),
        "written_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }
    text = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
    (staging / "manifest").write_text(text, encoding="utf-8")
    return manifest


def _notes(plan: Plan, n_rows: int, counts: Counts) -> list[str]:
    notes = []
    if plan.raw_rows is not None and n_rows != plan.raw_rows:
        notes.append(
            f"the raw file has {n_rows:,} rows, the published one {plan.raw_rows:,}: it may be cut off or changed"
        )
    comparison = compare_counts(counts, plan.expected, plan.expected_from)
    return notes + [comparison] if comparison else notes


def _load(plan: Plan, store: EventStore, users: Vocabulary, items: Vocabulary, show_progress: bool) -> int:
    """Read the raw file into the store; interactions outside the time and rating filters are counted, not stored."""
    since = pd.Timestamp(plan.since, tz="UTC").timestamp() if plan.since else -np.inf
    n_rows = 0
    for events in progress(
        read_events(plan.raw, plan.table, plan.member), description=f"reading {plan.raw.name}", enabled=show_progress
    ):
        user, item = users.encode(events.user), items.encode(events.item)
        keep = events.time >= since
        if plan.min_rating is not None and events.rating is not None:
            keep &= events.rating >= plan.min_rating
        store.append(user[keep], item[keep], events.time[keep])
        n_rows += len(user)
    if not n_rows:
        raise DataError(f"{plan.raw} holds no interactions", "check the file")
    return n_rows


def _occurring(store: EventStore, n_users: int, n_items: int) -> Counts:
    user_seen, item_seen, n_events = np.zeros(n_users, bool), np.zeros(n_items, bool), 0
    for chunk in store.chunks():
        user_seen[chunk["user"]], item_seen[chunk["item"]] = True, True
        n_events += len(chunk)
    return Counts(int(user_seen.sum()), int(item_seen.sum()), n_events)


def _filter_name(plan: Plan) -> str:
    parts = [f"since {plan.since}"] if plan.since else []
    if plan.min_rating is not None:
        parts.append(f"rating >= {plan.min_rating:g}")
    return ", ".join(parts)


def _step(name: str, counts: Counts) -> dict[str, Any]:
    return {"step": name, **asdict(counts)}
