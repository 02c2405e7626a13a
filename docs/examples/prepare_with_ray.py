"""The same atomic file as `recbole-prism prepare --from LOG.csv`, made by Ray on several workers.

    python docs/examples/prepare_with_ray.py LOG.csv --user uid --item asin --time when --core 5 --out mydata.inter

For logs that one machine reads too slowly. Rows stay with the workers, in Ray's object store, which spills to disk; the
driver holds one count per user and item, as `prepare` does, and passes the sorted text through. The log must be a CSV
with a header and without line breaks inside quotes, in a place that all workers can read. On a cluster, call
`ray.init(address="auto")`.
"""

from __future__ import annotations

import argparse
import io
from collections import Counter
from pathlib import Path
from typing import Iterator, Optional

import numpy as np
import pandas as pd
import ray

from recbole_prism.data.atomic_file import HEADER, check_tokens, time_text
from recbole_prism.data.columns import TimeColumn, id_strings

BLOCK_BYTES = 64 << 20  # read by one task
BUCKET_ROWS = 1_000_000  # sorted by one task


@ray.remote
def read(path: str, start: int, end: int, columns: list[str]) -> pd.DataFrame:
    """Rows whose line begins in [start, end), with the line's place in the file, which orders ties."""
    with open(path, "rb") as stream:
        header = stream.readline()
        stream.seek(max(start - 1, len(header) - 1))
        stream.readline()  # the rest of a line of the range before; just a line end if one begins at `start`
        place = stream.tell()
        lines = []
        while stream.tell() < end:
            lines.append(stream.readline())
    places = place + np.cumsum([0, *map(len, lines)])[:-1]
    filled = np.array([bool(line.strip()) for line in lines], bool)
    names = list(pd.read_csv(io.BytesIO(header)).columns)
    if not filled.any():
        return pd.DataFrame({"user": [], "item": [], "time": [], "place": []})
    frame = pd.read_csv(io.BytesIO(b"".join(lines)), names=names, dtype=str, keep_default_na=False)
    user, item, time = columns
    ids = {"user": id_strings(frame[user], 1), "item": id_strings(frame[item], 1)}
    return pd.DataFrame({**ids, "time": TimeColumn().seconds(frame[time], 1), "place": places[filled]})


@ray.remote
def keep(block: pd.DataFrame, users: set[str], items: set[str]) -> pd.DataFrame:
    return block[block["user"].isin(users) & block["item"].isin(items)]


@ray.remote
def count(block: pd.DataFrame) -> tuple[Counter, Counter, dict[str, int]]:
    """Events per user and per item, and the first place of each user."""
    first = block.groupby("user")["place"].min().to_dict()
    return Counter(block["user"]), Counter(block["item"]), first


@ray.remote
def deal(block: pd.DataFrame, number: dict[str, tuple[int, int]], n_buckets: int) -> list[pd.DataFrame]:
    """Split a block by bucket, a range of neighbouring users."""
    numbers = np.array([number[user] for user in block["user"]], np.int64).reshape(-1, 2)
    block = block.assign(rank=numbers[:, 0])
    return [block[numbers[:, 1] == bucket] for bucket in range(n_buckets)]


@ray.remote
def text(*parts: pd.DataFrame) -> str:
    """Sorted lines of one bucket."""
    rows = pd.concat(parts).sort_values(["rank", "time", "place"])
    return "".join(
        [f"{u}\t{i}\t{time_text(t)}\n" for u, i, t in zip(rows["user"], rows["item"], rows["time"].astype(float))]
    )


def counted(blocks: list[ray.ObjectRef]) -> tuple[Counter, Counter, dict[str, int]]:
    users: Counter = Counter()
    items: Counter = Counter()
    first: dict[str, int] = {}
    for ref in [count.remote(block) for block in blocks]:  # in the order of the file, so the first place comes first
        more_users, more_items, places = ray.get(ref)
        users.update(more_users)
        items.update(more_items)
        first = {**places, **first}
    return users, items, first


def iterated_core(blocks: list[ray.ObjectRef], core: int) -> tuple[list[ray.ObjectRef], Counter, dict[str, int]]:
    """Drop rare users and items until none is left.

    The order of users is taken from the unfiltered log, as `prepare` does.
    """
    users, items, first = counted(blocks)
    while users and core > min(min(users.values()), min(items.values())):
        frequent = [ray.put({token for token, n in side.items() if n >= core}) for side in (users, items)]
        blocks = [keep.remote(block, *frequent) for block in blocks]
        users, items, _ = counted(blocks)
    check_tokens(list(users), "user")
    check_tokens(list(items), "item")
    return blocks, users, first


def sorted_text(blocks: list[ray.ObjectRef], users: Counter, first: dict[str, int], bucket_rows: int) -> Iterator[str]:
    """The file in pieces: users by first appearance, then time, then place in the log."""
    ordered = sorted(users, key=first.__getitem__)
    bucket = np.cumsum([users[user] for user in ordered]) // bucket_rows
    n_buckets = int(bucket[-1]) + 1 if ordered else 0
    number = ray.put({user: (rank, int(bucket[rank])) for rank, user in enumerate(ordered)})
    # one bucket more than needed, always empty: with a single return value Ray would not take the list apart
    dealt = [deal.options(num_returns=n_buckets + 1).remote(block, number, n_buckets + 1) for block in blocks]
    for ref in [text.remote(*(parts[k] for parts in dealt)) for k in range(n_buckets)]:
        yield ray.get(ref)


def main(argv: Optional[list[str]] = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("log")
    for name in ("user", "item", "time", "out"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--block_bytes", type=int, default=BLOCK_BYTES)
    parser.add_argument("--bucket_rows", type=int, default=BUCKET_ROWS)
    args = parser.parse_args(argv)
    ray.init(num_cpus=args.workers, include_dashboard=False, log_to_driver=False)
    size, step = Path(args.log).stat().st_size, args.block_bytes
    columns = [args.user, args.item, args.time]
    blocks = [read.remote(args.log, start, min(start + step, size), columns) for start in range(0, size, step)]
    blocks, users, first = iterated_core(blocks, args.core)
    with open(args.out, "w", encoding="utf-8", newline="\n") as stream:
        stream.write(HEADER)
        stream.writelines(sorted_text(blocks, users, first, args.bucket_rows))


if __name__ == "__main__":
    main()
