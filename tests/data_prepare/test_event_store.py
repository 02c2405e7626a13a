"""Records on disk: order of the sorted output against Python's stable sort."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from recbole_prism.data import event_store
from recbole_prism.data.event_store import EventStore, Vocabulary


@pytest.mark.parametrize("sort_rows", [1, 7, 50, 10**6])
def test_sorted_by_user_then_time_then_file_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sort_rows: int
) -> None:
    monkeypatch.setattr(event_store, "SORT_ROWS", sort_rows)
    monkeypatch.setattr(event_store, "READ_ROWS", 11)
    draw = np.random.default_rng(3)
    user, item, time = draw.integers(0, 9, 200), draw.integers(0, 200, 200), draw.integers(0, 4, 200).astype(float)
    store = EventStore(tmp_path)
    for part in np.array_split(np.arange(200), 5):
        store.append(user[part], item[part], time[part])
    keep_user, keep_item = draw.random(9) < 0.7, draw.random(200) < 0.8
    chunks = list(store.sorted_chunks(keep_user, keep_item))
    wanted = [
        row for row in zip(user.tolist(), item.tolist(), time.tolist()) if keep_user[row[0]] and keep_item[row[1]]
    ]
    assert np.concatenate(chunks).tolist() == sorted(
        wanted, key=lambda row: (row[0], row[2])
    )  # Python's sort is stable
    users_of_chunks = [set(chunk["user"].tolist()) for chunk in chunks]
    assert sum(map(len, users_of_chunks)) == len(set().union(*users_of_chunks))  # no user in two chunks
    assert [path.name for path in tmp_path.iterdir()] == ["events.bin"]


def test_codes_in_order_of_appearance_over_chunks() -> None:
    vocabulary = Vocabulary()
    assert vocabulary.encode(np.array(["b", "a", "b"], object)).tolist() == [0, 1, 0]
    assert vocabulary.encode(np.array(["c", "a", "007", "7"], object)).tolist() == [2, 1, 3, 4]
    assert vocabulary.tokens() == ["b", "a", "c", "007", "7"] and len(vocabulary) == 5
