"""What was done to make an atomic file: <name>.prepare.json beside it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, Optional

from recbole_prism.data.files import file_digests
from recbole_prism.data.kcore import Counts
from recbole_prism.errors import DataError

SCHEMA_VERSION = 1


def manifest_path(folder: Path, name: str) -> Path:
    """Place of the manifest of data set `name` in its folder."""
    return folder / f"{name}.prepare.json"


def read_manifest(folder: Path, name: str) -> Optional[dict[str, Any]]:
    """The manifest, or None if there is none.

    Raises:
        DataError: If it cannot be read.
    """
    path = manifest_path(folder, name)
    if not path.is_file():
        return None
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        if values["schema_version"] == SCHEMA_VERSION:
            return dict(values)
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} cannot be read: {error}", "prepare the data set again with --overwrite") from error
    raise DataError(
        f"{path} has schema version {values['schema_version']}, this program reads {SCHEMA_VERSION}",
        "prepare again with --overwrite",
    )


def is_current(manifest: dict[str, Any], inter: Path, settings: dict[str, Any], sha256: str) -> bool:
    """Whether the atomic file is what these settings and this raw file give, untouched since."""
    return (
        bool(manifest["settings"] == settings and manifest["source"]["sha256"] == sha256)
        and inter.is_file()
        and file_digests(inter)["sha256"] == manifest["result"]["sha256"]
    )


def compare_counts(found: Counts, expected: Optional[Counts], whose: str) -> str:
    """One line on published counts: that they are equal, or each difference; "" if there are none."""
    if expected is None:
        return ""
    if found == expected:
        return f"counts equal {whose}"
    pairs = [(key, number, getattr(expected, key)) for key, number in asdict(found).items()]
    parts = [
        f"{number:,} {key} instead of {wanted:,} ({number - wanted:+,})"
        for key, number, wanted in pairs
        if number != wanted
    ]
    return f"counts differ from {whose}: {'; '.join(parts)}"


def report_lines(manifest: dict[str, Any]) -> list[str]:
    """The manifest for people, one line each."""
    source, result = manifest["source"], manifest["result"]
    lines = [f"source      {source['file']} ({source['size']:,} bytes, sha256 {source['sha256'][:12]}...)"]
    for step in manifest["steps"]:
        counts = f"{step['users']:>12,} users {step['items']:>12,} items {step['interactions']:>14,} interactions"
        lines.append(f"{step['step']:<24} {counts}")
    if result["tied_events"]:
        events = (
            f"{result['tied_events'] / result['interactions']:.1%} of events share user and time with the one before"
        )
        users = f"{result['users_tied_at_end'] / result['users']:.1%} of users: the last two"
        lines.append(f"ties        {events} ({users}); file order decides")
    lines += [f"note        {note}" for note in manifest["notes"]]
    return lines
