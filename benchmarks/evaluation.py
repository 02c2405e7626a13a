"""Seconds of a full evaluation: encode every row, score all items, rank, compute the metrics.

Reference: stock RecBole's `Trainer.evaluate` on its full-ranking loader, with the same rows and metrics. Our evaluation
takes ranks with seen items removed and with nothing removed from the same pass; stock RecBole removes nothing.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any, Callable

import common

REFERENCE = "stock SASRec, stock evaluation"


def stock_evaluation(dataset: str, arguments: argparse.Namespace) -> tuple[Callable[[], Any], Any, int]:
    from recbole.trainer import Trainer as RecBoleTrainer

    contender = common.stock(
        REFERENCE, dataset, arguments, anomaly=False, eval_batch_size=arguments.stock_batch_size, checkpoint_dir="."
    )
    trainer = RecBoleTrainer(contender.config, contender.model)
    loader = contender.loaders[1]
    return lambda: trainer.evaluate(loader, load_best_model=False), contender.config["device"], len(loader.dataset)


def our_evaluation(model: str, dataset: str, arguments: argparse.Namespace, **more: Any) -> Callable[[], Any]:
    more = {"eval_batch_size": arguments.batch_size, **more} if arguments.batch_size else more
    contender = common.ours(model, model, dataset, arguments, **more)
    trainer = common.Trainer(contender.config, contender.model)
    return lambda: trainer.evaluate(contender.loaders[1], load_best_model=False)


def measure(dataset: str, arguments: argparse.Namespace) -> dict[str, Any]:
    reference, device, n_rows = stock_evaluation(dataset, arguments)
    calls: dict[str, Callable[[], Any]] = {
        REFERENCE: reference,
        "SASRec": our_evaluation("SASRec", dataset, arguments),
        "PRISM K=2": our_evaluation("PRISM", dataset, arguments, n_lenses=2),
        "PRISM K=4": our_evaluation("PRISM", dataset, arguments),
        "PRISM K=8": our_evaluation("PRISM", dataset, arguments, n_lenses=8),
    }
    timings = common.interleaved(calls, arguments.repetitions, warmup=0, device=device)
    seconds = {name: timing.of(device) for name, timing in timings.items()}
    results = {
        name: {"seconds": statistics.median(s), "seconds_wall": statistics.median(timings[name].wall),
               "ratio": common.ratio(s, seconds[REFERENCE]), "n_rows": n_rows}
        for name, s in seconds.items()
    }  # fmt: skip
    return {"contenders": results, "k8_over_k2": common.ratio(seconds["PRISM K=8"], seconds["PRISM K=2"])}


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--datasets", nargs="+", default=["amazon-toys"])
    parser.add_argument("--repetitions", type=int, default=2)
    parser.add_argument("--batch_size", type=int, default=None, help="eval_batch_size; unset: the package's default")
    parser.add_argument("--stock_batch_size", type=int, default=4096, help="RecBole's default")
    arguments = common.parse(parser)
    results, text = {}, []
    with common.scratch_directory():
        for dataset in arguments.datasets:
            result = results[dataset] = measure(dataset, arguments)
            rows = [
                (name, r["seconds"], r["seconds_wall"], r["ratio"]["median"],
                 f"{r['ratio']['q1']:.3f}-{r['ratio']['q3']:.3f}")
                for name, r in result["contenders"].items()
            ]  # fmt: skip
            header = ("contender", "CPU s", "wall s", "ratio", "quartiles")
            k = result["k8_over_k2"]
            text.append(
                f"## {dataset} ({result['contenders'][REFERENCE]['n_rows']} rows)\n\n{common.table(header, rows)}\n\n"
                f"PRISM K=8 over K=2: {k['median']:.3f} ({k['q1']:.3f}-{k['q3']:.3f})"
            )
            common.write(arguments, "evaluation", "Full evaluation", "\n\n".join(text), {"datasets": results})


if __name__ == "__main__":
    main()
