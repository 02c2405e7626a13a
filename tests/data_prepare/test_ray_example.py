"""The example of docs/data.md on two local workers writes the file that `prepare` writes, byte for byte."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from recbole_prism.data_cli import prepare_main

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_ray_writes_the_same_bytes(tmp_path: Path) -> None:
    draw = random.Random(0)
    rows = [
        f'u {int(draw.paretovariate(1.2) * 20) % 300},"a, b",{draw.randrange(80):05d},{1_600_000_000 + day / 2}'
        for day in draw.choices(range(50), k=3000)
    ]
    log = tmp_path / "log.csv"
    log.write_text("\n".join(["uid,note,asin,when", *rows[:1000], "", *rows[1000:]]))  # an empty line, no end of line
    columns = "--user uid --item asin --time when --core 5".split()
    assert prepare_main(["--from", str(log), *columns, "--name", "mine", "--data_path", str(tmp_path)]) == 0
    wanted = (tmp_path / "mine" / "mine.inter").read_bytes()
    assert 1000 < wanted.count(b"\n") < 2990  # the core drops something, and leaves something

    example = [sys.executable, str(ROOT / "docs" / "examples" / "prepare_with_ray.py"), str(log), *columns]
    example += ["--out", str(tmp_path / "ray.inter"), "--block_bytes", "30000", "--bucket_rows", "900"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    subprocess.run(example, check=True, env=environment, cwd=tmp_path)
    assert (tmp_path / "ray.inter").read_bytes() == wanted
