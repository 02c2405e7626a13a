"""The table of training.py and evaluation.py on a GPU, memory, and where the time of a step goes; within 8 minutes.

    python benchmarks/gpu.py --data_path ... --dataset amazon-toys

Without `--data_path` a synthetic data set of the size of Toys is made. Every part is written as soon as it is measured.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, Callable

import common
import torch

REFERENCE = "stock SASRec, anomaly detection off"


def like_toys(folder: Path) -> None:
    """An atomic file with the counts of Toys: 19,412 users, 11,924 items, lengths 5 and more."""
    import numpy as np

    random = np.random.default_rng(0)
    (folder / "synthetic").mkdir()
    with open(folder / "synthetic" / "synthetic.inter", "w", encoding="utf-8") as file:
        file.write("user_id:token\titem_id:token\ttimestamp:float\n")
        for user in range(19_412):
            for time_of_event, item in enumerate(random.integers(1, 11_925, 4 + random.geometric(0.22))):
                file.write(f"{user}\t{item}\t{time_of_event}\n")


def contenders(dataset: str, arguments: argparse.Namespace) -> dict[str, common.Contender]:
    listed = [
        common.stock(REFERENCE, dataset, arguments, anomaly=False),
        common.stock("stock SASRec as shipped", dataset, arguments, anomaly=True),
        common.ours("SASRec", "SASRec", dataset, arguments),
        common.ours("SASRec, fast_path False", "SASRec", dataset, arguments, fast_path=False),
        common.ours("PRISM (K=4, all losses)", "PRISM", dataset, arguments),
        common.ours("PRISM, fast_path False", "PRISM", dataset, arguments, fast_path=False),
    ]
    return {contender.name: contender for contender in listed}


def peak_megabytes(step: Callable[[], Any]) -> float:
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 1e6


def evaluation_seconds(contender: common.Contender) -> float:
    trainer = common.Trainer(contender.config, contender.model)
    trainer.evaluate(contender.loaders[1], load_best_model=False)
    torch.cuda.synchronize()
    before = time.perf_counter()
    trainer.evaluate(contender.loaders[1], load_best_model=False)
    return time.perf_counter() - before


def profile_of(step: Callable[[], Any], n_steps: int = 5) -> str:
    """Time by operator, and the copies that make the CPU wait for the device."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorded:
        for _ in range(n_steps):
            step()
        torch.cuda.synchronize()
    averages = recorded.key_averages()
    waits = {e.key: e.count / n_steps for e in averages if "Synchronize" in e.key or "item" in e.key.lower()}
    listing = averages.table(sort_by="self_cuda_time_total", row_limit=25, max_name_column_width=50)
    return f"Waits for the device per step: {waits}\n\n```\n{listing}\n```"


def main() -> None:
    parser = common.parser(__doc__)
    parser.set_defaults(device="cuda")
    parser.add_argument("--dataset", default="synthetic")
    parser.add_argument("--steps", type=int, default=30)
    arguments = common.parse(parser)
    with tempfile.TemporaryDirectory() as folder:
        if arguments.dataset == "synthetic":
            like_toys(Path(folder))
            arguments.data_path = Path(folder)
        measure(arguments)


def measure(arguments: argparse.Namespace) -> None:
    models = contenders(arguments.dataset, arguments)
    device = torch.device(arguments.device)
    timings = common.interleaved({n: m.step for n, m in models.items()}, arguments.steps, warmup=5, device=device)
    rows, values = [], {}
    for name, timing in timings.items():
        ratio = common.ratio(timing.wall, timings[REFERENCE].wall)
        seconds = statistics.median(timing.wall)
        megabytes = peak_megabytes(models[name].step)
        values[name] = {"step_ms": seconds * 1e3, "epoch_s": seconds * models[name].n_batches, "ratio": ratio,
                        "peak_mb": megabytes}  # fmt: skip
        spread = f"{ratio['q1']:.3f}-{ratio['q3']:.3f}"
        rows.append(
            (name, seconds * 1e3, seconds * models[name].n_batches, ratio["median"], spread, f"{megabytes:.0f}")
        )
    header = ("contender", "step, ms", "epoch, s", "ratio", "quartiles", "peak, MB")
    text = f"## {arguments.dataset}\n\n{common.table(header, rows)}"
    common.write(arguments, "gpu", "GPU", text, {"contenders": values})
    own = {name: evaluation_seconds(model) for name, model in models.items() if not name.startswith("stock")}
    text += "\n\n## Full evaluation\n\n" + common.table(("contender", "s"), list(own.items()))
    common.write(arguments, "gpu", "GPU", text, {"contenders": values, "evaluation_s": own})
    text += "\n\n## A PRISM step\n\n" + profile_of(models["PRISM (K=4, all losses)"].step)
    common.write(arguments, "gpu", "GPU", text, {"contenders": values, "evaluation_s": own})


if __name__ == "__main__":
    main()
