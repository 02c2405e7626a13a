"""Seconds of a training epoch against stock RecBole's SASRec: every contender takes the same steps in turn.

A step is: load the batch, forward, backward, optimizer. All contenders see the same rows in the same order (RecBole's
shuffle). An epoch is the median step times the number of steps.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

import common
from common import Contender

REFERENCE = "stock SASRec, anomaly detection off"
STOCK_AS_SHIPPED = "stock SASRec as shipped"


def contenders(dataset: str, arguments: argparse.Namespace) -> dict[str, Contender]:
    """The table's lines for one data set, reference first."""
    anomaly = common.stock(STOCK_AS_SHIPPED, dataset, arguments, anomaly=True)
    naive = common.ours("PRISM, naive lens, fast_path False", "PRISM", dataset, arguments, fast_path=False)
    naive.step = common.under(common.naive_lens, naive.step)
    listed = [
        common.stock(REFERENCE, dataset, arguments, anomaly=False),
        anomaly,
        common.ours("SASRec", "SASRec", dataset, arguments),
        common.ours("PRISM (K=4, all losses)", "PRISM", dataset, arguments),
        common.ours("PRISM without auxiliary losses", "PRISM", dataset, arguments, aux_weight=0.0),
        common.ours("SASRec, fast_path False", "SASRec", dataset, arguments, fast_path=False),
        naive,
    ]
    return {contender.name: contender for contender in listed}


def measure(dataset: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Steps of all contenders on one data set."""
    models = contenders(dataset, arguments)
    device = models["SASRec"].config["device"]
    if arguments.only:
        models = {name: model for name, model in models.items() if name == REFERENCE or arguments.only in name}
    timings = common.interleaved({n: m.step for n, m in models.items()}, arguments.steps, device=device)
    reference = timings[REFERENCE].of(device)
    return {
        name: {
            "step_ms": statistics.median(timing.of(device)) * 1e3,
            "step_ms_wall": statistics.median(timing.wall) * 1e3,
            "epoch_s": statistics.median(timing.of(device)) * models[name].n_batches,
            "n_batches": models[name].n_batches,
            "ratio": common.ratio(timing.of(device), reference),
        }
        for name, timing in timings.items()
    }


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--datasets", nargs="+", default=["amazon-toys", "amazon-beauty", "ml-1m"])
    parser.add_argument("--steps", type=int, default=15, help="timed steps per contender")
    parser.add_argument("--only", default=None, help="contenders whose name holds this, beside the reference")
    arguments = common.parse(parser)
    for dataset in arguments.datasets:
        results = measure(dataset, arguments)
        rows = [
            (name, r["step_ms"], r["step_ms_wall"], r["epoch_s"],
             r["ratio"]["median"], f"{r['ratio']['q1']:.3f}-{r['ratio']['q3']:.3f}")
            for name, r in results.items()
        ]  # fmt: skip
        header = ("contender", "step, CPU ms", "step, wall ms", "epoch, s", "ratio", "quartiles")
        title = f"Training on {dataset}: {results[REFERENCE]['n_batches']} steps an epoch"
        common.write(arguments, f"training_{dataset}", title, common.table(header, rows), {"contenders": results})


if __name__ == "__main__":
    main()
