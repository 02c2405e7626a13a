"""RecTools' SASRec against ours: seconds of a training epoch with the same targets, each in its own layout.

RecTools cannot share an environment with RecBole's stack; install it in one of its own (pip install 'rectools[torch]')
and run this file with that Python. `--our_python` is the Python that has this package: it measures our side, block by
block in turn with RecTools' blocks.

Same T, d, layers, heads, dropout, full softmax and Adam. RecTools' feed-forward block is d -> d -> d, so ours is given
inner_size = d here. RecTools trains one row per user on all its positions (default batch of 128 users), we train one
row per target; per epoch both learn the same targets, all but the last two events of each user.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable

T, D, LAYERS, HEADS, DROPOUT = 50, 64, 2, 2, 0.5


def block(step: Callable[[], Any], n_steps: int) -> list[float]:
    """CPU seconds of each of some steps."""
    seconds = []
    for _ in range(n_steps):
        before = time.process_time()
        step()
        seconds.append(time.process_time() - before)
    return seconds


def rectools_side(file: Path) -> tuple[Callable[[], Any], int, int]:
    """A step of RecTools' SASRec, the number of steps and of targets in an epoch."""
    import pandas as pd
    import torch
    from rectools import Columns
    from rectools.dataset import Dataset
    from rectools.models import SASRecModel

    table = pd.read_csv(file, sep="\t")
    table.columns = [name.split(":")[0] for name in table.columns]
    columns = {"user_id": Columns.User, "item_id": Columns.Item, "timestamp": Columns.Datetime}
    table = table[list(columns)].rename(columns=columns)
    table[Columns.Datetime] = pd.to_datetime(table[Columns.Datetime], unit="s")
    table = table.sort_values([Columns.User, Columns.Datetime], kind="stable")
    train = table[table.groupby(Columns.User).cumcount(ascending=False) >= 2].assign(**{Columns.Weight: 1.0})
    model = SASRecModel(
        n_blocks=LAYERS, n_heads=HEADS, n_factors=D, dropout_rate=DROPOUT, session_max_len=T, loss="softmax", lr=0.001,
        epochs=1,
    )  # fmt: skip
    model._build_model_from_dataset(Dataset.construct(train))
    loader = model.data_preparator.get_dataloader_train()
    n_targets = sum(int((batch["yw"] != 0).sum()) for batch in loader)
    lightning = model.lightning_model
    lightning.log = lambda *_, **__: None  # no trainer around it
    lightning.train()
    optimizer = torch.optim.Adam(lightning.torch_model.parameters(), lr=0.001, betas=(0.9, 0.98))  # its default
    batches = iter(loader)

    def step() -> None:
        optimizer.zero_grad()
        lightning.training_step(next(batches), 0).backward()
        optimizer.step()

    return step, len(loader), n_targets


def our_side(arguments: argparse.Namespace) -> None:
    """Print one block of our steps as JSON."""
    import common

    names = argparse.Namespace(data_path=arguments.data_path, threads=arguments.threads, device="cpu")
    common.torch.set_num_threads(arguments.threads)
    ours = common.ours("SASRec", "SASRec", arguments.dataset, names, inner_size=D)
    block(ours.step, 3)
    print(json.dumps([block(ours.step, arguments.steps * 4), ours.n_batches, len(ours.loaders[0].dataset)]))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data_path", type=Path, required=True)
    parser.add_argument("--dataset", default="amazon-toys")
    parser.add_argument("--our_python", help="Python of the environment with this package")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=4, help="RecTools' steps in a block; ours take four times as many")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, default=Path(__file__).resolve().parents[1] / "results" / "speed")
    parser.add_argument("--ours", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.ours:
        return our_side(arguments)
    import torch

    torch.set_num_threads(arguments.threads)
    step, n_steps, n_targets = rectools_side(arguments.data_path / arguments.dataset / f"{arguments.dataset}.inter")
    block(step, 1)
    theirs: list[float] = []
    ours: list[float] = []
    command = [arguments.our_python, __file__, "--ours", *sys.argv[1:]]
    for _ in range(arguments.rounds):
        theirs += block(step, arguments.steps)
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1]
        seconds, our_steps, our_targets = json.loads(printed)
        ours += seconds
    epochs = {"RecTools": statistics.median(theirs) * n_steps, "ours": statistics.median(ours) * our_steps}
    report(arguments, epochs, {"RecTools": (n_steps, n_targets, theirs), "ours": (our_steps, our_targets, ours)})


def report(arguments: argparse.Namespace, epochs: dict[str, float], blocks: dict[str, Any]) -> None:
    """Write rectools.md and rectools.json."""
    import datetime
    from importlib import metadata

    versions = {name: metadata.version(name) for name in ("rectools", "torch", "numpy", "pandas")}
    lines = [
        "# RecTools' SASRec and ours", "",
        f"{datetime.date.today()}, {arguments.dataset}, {arguments.threads} thread(s), "
        + ", ".join(f"{name} {version}" for name, version in versions.items()) + ".", "",
        "| | steps an epoch | targets an epoch | step, CPU ms | quartiles | epoch, CPU s | ratio |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]  # fmt: skip
    for name, (n_steps, n_targets, seconds) in blocks.items():
        low, middle, high = statistics.quantiles(seconds, n=4)
        lines.append(
            f"| {name} | {n_steps} | {n_targets} | {middle * 1e3:.0f} | {low * 1e3:.0f}-{high * 1e3:.0f} "
            f"| {epochs[name]:.1f} | {epochs[name] / epochs['RecTools']:.3f} |"
        )
    page = "\n".join(lines) + "\n"
    arguments.output.mkdir(parents=True, exist_ok=True)
    (arguments.output / "rectools.md").write_text(page, encoding="utf-8")
    values = {
        "date": str(datetime.date.today()),
        "versions": versions,
        "threads": arguments.threads,
        "dataset": arguments.dataset,
        "epoch_seconds": epochs,
        "blocks": {name: dict(zip(("n_steps", "n_targets", "seconds"), values)) for name, values in blocks.items()},
    }
    (arguments.output / "rectools.json").write_text(json.dumps(values, indent=1), encoding="utf-8")
    print(page)


if __name__ == "__main__":
    main()
