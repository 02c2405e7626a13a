"""Peak memory of a training step, parameters and optimizer state excluded, by torch's own allocation record."""

from __future__ import annotations

import argparse
import statistics
from typing import Callable

import common


def contenders(dataset: str, arguments: argparse.Namespace) -> dict[str, Callable[[], int]]:
    """One call = the peak of one step, bytes."""
    models = {
        "stock SASRec": common.stock("stock SASRec", dataset, arguments, anomaly=False).step,
        "SASRec": common.ours("SASRec", "SASRec", dataset, arguments).step,
    }
    for k in (2, 4, 8):
        models[f"PRISM K={k}"] = common.ours("PRISM", "PRISM", dataset, arguments, n_lenses=k).step
    naive = common.ours("naive", "PRISM", dataset, arguments, fast_path=False).step
    models["PRISM K=4, naive lens, fast_path False"] = common.under(common.naive_lens, naive)
    return {name: lambda step=step: common.peak_of_step(step) for name, step in models.items()}


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--datasets", nargs="+", default=["amazon-toys"])
    parser.add_argument("--steps", type=int, default=3)
    arguments = common.parse(parser)
    results, text = {}, []
    for dataset in arguments.datasets:
        peaks = {}
        for name, call in contenders(dataset, arguments).items():
            call()  # gradients and optimizer state come into being in the first step
            peaks[name] = statistics.median(call() for _ in range(arguments.steps)) / 1e6
        results[dataset] = peaks
        rows = [(name, f"{peak:.0f}", peak / peaks["stock SASRec"]) for name, peak in peaks.items()]
        text.append(
            f"## {dataset}\n\n{common.table(('contender', 'peak, MB', 'ratio to stock'), rows)}\n\n"
            f"PRISM K=8 over K=2: {peaks['PRISM K=8'] / peaks['PRISM K=2']:.2f}"
        )
    common.write(arguments, "memory", "Peak memory of a training step", "\n\n".join(text), {"megabytes": results})


if __name__ == "__main__":
    main()
