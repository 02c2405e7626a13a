"""Scaling curves: time and peak memory of a step with K, T and V, and of the data path with the number of interactions.

K and V: histories as in the Amazon sets (geometric, mean 8). T: every history has T items, the dense worst case.
Interactions: a synthetic atomic file is read, split into rows and batched in a process of its own.
"""

from __future__ import annotations

import multiprocessing
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import common
import synthetic
import torch

BATCH = 256


def step_costs(model: str, steps: int, dense: bool = False, **overrides: Any) -> dict[str, float]:
    """CPU milliseconds and peak megabytes of a training step on synthetic batches."""
    n_items, longest = int(overrides.pop("n_items", 12_000)), int(overrides.get("MAX_ITEM_LIST_LENGTH", 50))
    config = common.Config(
        model=model, dataset="ml-100k", config_dict={"device": "cpu", "show_progress": False, **overrides}
    )
    common.seed_everything(0)
    built = config.model_class(config, synthetic.Counts(n_items)).train()
    trainer, tracker = common.Trainer(config, built), common.LossTracker(config["device"])
    generator = torch.Generator().manual_seed(0)

    def step() -> None:
        if dense:
            lengths = [torch.full((BATCH,), longest)] * 2
        else:
            lengths = [synthetic.lengths_like_toys(BATCH, longest, generator) for _ in range(2)]
        trainer._train_batch(synthetic.batch(BATCH, n_items, *lengths, generator), tracker, 0)

    step()
    seconds = []
    for _ in range(steps):
        before = time.process_time()
        step()
        seconds.append(time.process_time() - before)
    return {"ms": statistics.median(seconds) * 1e3, "mb": common.peak_of_step(step) / 1e6}


def data_costs(n_interactions: int, queue: Any) -> None:
    """Seconds to read and split a file, milliseconds per training batch, peak resident memory of the process."""
    import numpy as np
    import pandas as pd

    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "synthetic"
        target.mkdir()
        random = np.random.default_rng(0)
        users = random.integers(1, n_interactions // 10 + 2, n_interactions)
        items = random.integers(1, min(n_interactions // 10, 100_000) + 2, n_interactions)
        names = ("user_id:token", "item_id:token", "timestamp:float")
        frame = pd.DataFrame(dict(zip(names, (users, items, np.arange(n_interactions)))))
        frame.to_csv(target / "synthetic.inter", sep="\t", index=False)
        del frame, users, items
        before, start = peak_resident(), time.process_time()
        config = common.Config(model="PRISM", dataset="synthetic", config_dict={"data_path": folder, "device": "cpu"})
        loader = common.data_preparation(config, common.create_dataset(config))[0]
        read = time.process_time() - start
        batches = iter(loader)
        next(batches)
        start = time.process_time()
        for _ in range(20):
            next(batches)
        batch = (time.process_time() - start) / 20
        queue.put({"read_s": read, "batch_ms": batch * 1e3, "peak_mb": peak_resident(), "before_mb": before})


def peak_resident() -> float:
    """Most resident megabytes of this process so far (Linux; `getrusage` would count the parent's too)."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def data_curve(sizes: list[int]) -> list[dict[str, float]]:
    context, rows = multiprocessing.get_context("spawn"), []
    for size in sizes:
        queue = context.Queue()
        process = context.Process(target=data_costs, args=(size, queue))
        process.start()
        rows.append({"value": size, **queue.get()})
        process.join()
    return rows


def picture(curves: dict[str, dict[str, list[dict[str, float]]]], data: list[dict[str, float]], file: Path) -> None:
    """One column per variable: time above, memory below."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    labels = {"K": "lenses K", "T": "history length T (dense)", "V": "items V", "N": "interactions"}
    figure, axes = pyplot.subplots(2, 4, figsize=(14, 6), constrained_layout=True)
    for column, name in enumerate(labels):
        for model, points in curves.get(name, {}).items():
            x = [point["value"] for point in points]
            axes[0, column].plot(x, [point["ms"] for point in points], marker="o", label=model)
            axes[1, column].plot(x, [point["mb"] for point in points], marker="o", label=model)
        for row in (0, 1):
            axes[row, column].set_xlabel(labels[name])
            if name in ("V", "N"):
                axes[row, column].set_xscale("log")
                axes[row, column].set_yscale("log")
    x = [point["value"] for point in data]
    axes[0, 3].plot(x, [point["read_s"] for point in data], marker="o", color="tab:green", label="read and split")
    axes[1, 3].plot(x, [point["peak_mb"] for point in data], marker="o", color="tab:green", label="whole process")
    for column in range(4):
        axes[0, column].set_ylabel("s" if column == 3 else "ms a step")
        axes[1, column].set_ylabel("peak resident MB" if column == 3 else "peak MB of a step")
        for row in (0, 1):
            if column < 3 and column != 2:
                axes[row, column].set_ylim(bottom=0)
            axes[row, column].grid(alpha=0.3)
            axes[row, column].legend()
    figure.savefig(file, dpi=110)


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--K", type=int, nargs="+", default=[2, 4, 6, 8])
    parser.add_argument("--T", type=int, nargs="+", default=[50, 100, 200])
    parser.add_argument("--V", type=int, nargs="+", default=[12_000, 63_001, 250_000, 1_000_000])
    parser.add_argument("--N", type=int, nargs="+", default=[100_000, 1_000_000, 10_000_000])
    arguments = common.parse(parser)
    one = max(1, arguments.steps // 2)
    curves = {
        "K": {
            "PRISM": [{"value": k, **step_costs("PRISM", arguments.steps, n_lenses=k)} for k in arguments.K]
        },
        "T": {
            model: [
                {"value": t, **step_costs(model, one, dense=True, MAX_ITEM_LIST_LENGTH=t)} for t in arguments.T
            ]
            for model in ("SASRec", "PRISM")
        },
        "V": {
            model: [{"value": v, **step_costs(model, one, n_items=v)} for v in arguments.V]
            for model in ("SASRec", "PRISM")
        },
    }  # fmt: skip
    data = data_curve(arguments.N)
    arguments.output.mkdir(parents=True, exist_ok=True)
    picture(curves, data, arguments.output / "scaling.png")
    text = ["![scaling](scaling.png)"]
    for name, models in curves.items():
        rows = [(model, p["value"], p["ms"], f"{p['mb']:.0f}") for model, points in models.items() for p in points]
        text.append(f"## {name}\n\n" + common.table(("model", name, "step, CPU ms", "peak of a step, MB"), rows))
    rows = [(p["value"], p["read_s"], p["batch_ms"], f"{p['before_mb']:.0f}", f"{p['peak_mb']:.0f}") for p in data]
    header = ("interactions", "read and split, CPU s", "batch, CPU ms", "resident before, MB", "peak resident, MB")
    text.append("## Interactions\n\n" + common.table(header, rows))
    common.write(arguments, "scaling", "Scaling", "\n\n".join(text), {"curves": curves, "data": data})


if __name__ == "__main__":
    main()
