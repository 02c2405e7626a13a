"""Seconds of a training epoch against stock RecBole's SASRec: every contender takes the same steps in turn.

A step is: load the batch, forward, backward, optimizer. All contenders see the same rows in the same order (RecBole's
shuffle). An epoch is the median step times the number of steps.
"""

from __future__ import annotations

import argparse
import statistics
from functools import partial
from typing import Any, Callable

import common
from common import Contender

REFERENCE = "stock SASRec, anomaly detection off"


def makers(dataset: str, arguments: argparse.Namespace) -> dict[str, Callable[[], Contender]]:
    """The table's lines for one data set, reference first."""

    def stock(name: str, anomaly: bool) -> Contender:
        return common.stock(name, dataset, arguments, anomaly=anomaly)

    def ours(name: str, model: str, **more: Any) -> Contender:
        return common.ours(name, model, dataset, arguments, **more)

    def naive(name: str) -> Contender:
        contender = ours(name, "PRISM", fast_path=False)
        contender.step = common.under(common.naive_lens, contender.step)
        return contender

    listed: dict[str, Callable[[str], Contender]] = {
        REFERENCE: partial(stock, anomaly=False),
        "stock SASRec as shipped": partial(stock, anomaly=True),
        "SASRec": partial(ours, model="SASRec"),
        "PRISM (K=4, all losses)": partial(ours, model="PRISM"),
        "PRISM without auxiliary losses": partial(ours, model="PRISM", aux_weight=0.0),
        "SASRec, fast_path False": partial(ours, model="SASRec", fast_path=False),
        "PRISM, naive lens, fast_path False": naive,
    }
    wanted = [name for name in listed if name == REFERENCE or arguments.only is None or name in arguments.only]
    return {name: partial(listed[name], name) for name in wanted}


def measure(dataset: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Steps of all contenders on one data set."""
    models = {name: make() for name, make in makers(dataset, arguments).items()}
    device = common.torch.device(arguments.device)
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
    parser.add_argument("--only", nargs="+", default=None, help="names of the lines wanted beside the reference")
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
