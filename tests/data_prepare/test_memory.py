"""Memory of `prepare` grows with users and items, not with rows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
N_USERS, N_ITEMS = 20_000, 2_000
# What a row may add to the peak: it is 16 bytes on disk, 41 in the text file, and must not be in memory at all.
BYTES_PER_ROW = 8

_CHILD = """
import resource, sys
from recbole_prism.data_cli import prepare_main
prepare_main(sys.argv[1:])
print("peak", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def write_log(path: Path, n_rows: int) -> Path:
    draw = np.random.default_rng(0)
    with path.open("w") as stream:
        stream.write("user,item,rating,timestamp\n")
        for _ in range(0, n_rows, 500_000):
            user, item = draw.integers(0, N_USERS, 500_000), draw.integers(0, N_ITEMS, 500_000)
            time = draw.integers(1_400_000_000, 1_600_000_000, 500_000)
            rows = zip(user.tolist(), item.tolist(), time.tolist())
            stream.write("".join([f"A{u:013d},B{i:09d},5.0,{t}\n" for u, i, t in rows]))
    return path


def peak_bytes(log: Path, data_path: Path) -> int:
    columns = "--user user --item item --time timestamp --name big --core 5".split()
    arguments = [sys.executable, "-c", _CHILD, "--from", str(log), *columns, "--data_path", str(data_path)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True, cwd=ROOT)
    return int(done.stdout.split()[-1]) * 1024


@pytest.mark.slow
def test_rows_are_not_kept_in_memory(tmp_path: Path) -> None:
    small, large = 1_000_000, 5_000_000
    peaks = [peak_bytes(write_log(tmp_path / f"{n}.csv", n), tmp_path / str(n)) for n in (small, large)]
    per_row = (peaks[1] - peaks[0]) / (large - small)
    assert per_row < BYTES_PER_ROW, f"{per_row:.1f} bytes per row, peaks {peaks}"
    with (tmp_path / str(large) / "big" / "big.inter").open() as stream:
        assert sum(1 for _ in stream) == large + 1
