"""Time and memory from the atomic file to the three parts, ours and stock RecBole's, each in a process of its own.

    python benchmarks/data_memory.py --data_path dataset           # ml-1m and amazon-sports must lie there
    python benchmarks/data_memory.py --data_path dataset --events 0    # without the synthetic log

Prints a Markdown table. Seconds are CPU seconds of the process (on a shared machine the wall clock means nothing);
memory is the peak of the resident set above what the imports take. The data folder is not written to.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import Any, Optional

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
SYNTHETIC = "synthetic"
CHUNK = 500_000


def measure(path: str, name: str, stock: bool, length: int, cache: bool) -> dict[str, float]:
    """Read and build one data set in this process."""
    sys.path.insert(0, str(ROOT))
    from recbole.data.utils import create_dataset as create_recbole_dataset

    from recbole_prism.config import Config
    from recbole_prism.data.dataset import SequentialDataset

    settings = {"data_path": path, "device": "cpu", "MAX_ITEM_LIST_LENGTH": length, "data_cache": cache}
    config = Config(model="recbole:GRU4Rec" if stock else "GRU4Rec", dataset=name, config_dict=settings)
    before, start = peak_mb(), time.process_time()
    dataset = create_recbole_dataset(config) if stock else SequentialDataset(config)
    read = time.process_time()
    parts = dataset.build()
    return {
        "read": read - start,
        "build": time.process_time() - read,
        "peak": peak_mb() - before,
        "rows": sum(len(part) for part in parts),
    }


def peak_mb() -> float:
    """Peak resident set of this process, in 10^6 bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6


def in_new_process(path: Path, name: str, stock: bool, length: int, cache: bool) -> Optional[dict[str, float]]:
    """`measure` in a fresh interpreter; None if it was killed (out of memory)."""
    job = json.dumps([str(path), name, stock, length, cache])
    done = subprocess.run([sys.executable, "-W", "ignore", __file__, "--job", job], capture_output=True, text=True)
    if done.returncode < 0:
        return None
    if done.returncode:
        raise RuntimeError(done.stderr)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def write_synthetic(folder: Path, n_events: int) -> None:
    """A log of about 50 events per user on 100,000 items with skewed popularity, in random order."""
    draw = np.random.default_rng(0)
    file = folder / SYNTHETIC / f"{SYNTHETIC}.inter"
    file.parent.mkdir()
    with file.open("w", encoding="utf-8") as stream:
        stream.write("user_id:token\titem_id:token\ttimestamp:float\n")
        for start in range(0, n_events, CHUNK):
            size = min(CHUNK, n_events - start)
            users = draw.integers(0, max(n_events // 50, 1), size).tolist()
            items = (100_000 * draw.random(size) ** 2).astype(np.int64).tolist()
            times = draw.integers(1_500_000_000, 1_700_000_000, size).tolist()
            stream.write("".join(f"user{u}\titem{i}\t{t}\n" for u, i, t in zip(users, items, times)))


def table_rows(path: Path, n_events: int, lengths: list[int]) -> list[tuple[str, str, int, bool, bool]]:
    """What is measured: label, data set, length, stock, cache. The first run with a cache writes it."""
    jobs: list[tuple[str, str, int, bool, bool]] = []
    for length in lengths:
        jobs += [("stock RecBole", "ml-1m", length, True, False), ("ours", "ml-1m", length, False, False)]
    for name in ("ml-1m", "amazon-sports", *([SYNTHETIC] if n_events else [])):
        if name != "ml-1m":
            jobs.append(("ours", name, 50, False, False))
        jobs += [("ours, writing the cache", name, 50, False, True), ("ours, from the cache", name, 50, False, True)]
    return [job for job in jobs if (path / job[1] / f"{job[1]}.inter").is_file()]


def versions() -> str:
    """One line on software and machine."""
    names = ("recbole", "pandas", "numpy", "torch")
    found = [f"Python {platform.python_version()}", *(f"{name} {metadata.version(name)}" for name in names)]
    return f"{', '.join(found)}; {platform.system()} {platform.machine()}"


def main() -> None:
    """Run all jobs and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data_path", type=Path, default=Path("dataset"))
    parser.add_argument("--events", type=int, default=10_000_000, help="size of the synthetic log; 0 for none")
    parser.add_argument("--lengths", type=int, nargs="+", default=[50, 200], help="history lengths T on ml-1m")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        print(json.dumps(measure(*json.loads(args.job))))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name in ("ml-1m", "amazon-sports"):  # links, so that the cache is written beside them
            source = args.data_path.resolve() / name / f"{name}.inter"
            if source.is_file():
                (folder / name).mkdir()
                (folder / name / source.name).symlink_to(source)
        if args.events:
            write_synthetic(folder, args.events)
        print(f"{versions()}\n")
        print("| data | T | who | reading, CPU s | splitting, CPU s | peak MB | rows |")
        print("|---|---|---|---|---|---|---|")
        for who, name, length, stock, cache in table_rows(folder, args.events, args.lengths):
            print(line(name, length, who, in_new_process(folder, name, stock, length, cache)), flush=True)


def line(name: str, length: int, who: str, result: Optional[dict[str, Any]]) -> str:
    """One row of the table."""
    if result is None:
        return f"| {name} | {length} | {who} | killed | | | |"
    numbers = f"{result['read']:.1f} | {result['build']:.1f} | {result['peak']:,.0f} | {result['rows']:,}"
    return f"| {name} | {length} | {who} | {numbers} |"


if __name__ == "__main__":
    main()
