"""Cost of a training step of the listed models relative to SASRec: all take the same steps in turn.

A step is: load the batch, forward, backward, optimizer. Work between epochs (clusterings) is not in it. A model may be
followed by settings: --models CL4SRec "DuoRec contrast=un".
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

import common
import yaml

REFERENCE = "SASRec"


def contender(spec: str, arguments: argparse.Namespace) -> common.Contender:
    """The model that "Name key=value ..." means."""
    model, *settings = spec.split()
    values: dict[str, Any] = {
        key: yaml.safe_load(value) for key, value in (setting.split("=", 1) for setting in settings)
    }
    return common.ours(spec, model, arguments.dataset, arguments, **values)


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Median step of each model, and its ratio to SASRec's step of the same round."""
    contenders = {spec: contender(spec, arguments) for spec in dict.fromkeys([REFERENCE, *arguments.models])}
    device = common.torch.device(arguments.device)
    timings = common.interleaved({n: c.step for n, c in contenders.items()}, arguments.steps, device=device)
    reference = timings[REFERENCE].of(device)
    return {
        name: {
            "parameters": sum(p.numel() for p in contenders[name].model.parameters()),
            "step_ms": statistics.median(timing.of(device)) * 1e3,
            "ratio": common.ratio(timing.of(device), reference),
        }
        for name, timing in timings.items()
    }


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--dataset", default="amazon-toys")
    parser.add_argument("--steps", type=int, default=25, help="timed steps per model")
    parser.add_argument("--models", nargs="+", default=["PRISM"], help="models beside SASRec, each with its settings")
    arguments = common.parse(parser)
    results = measure(arguments)
    rows = [
        (name, r["parameters"], r["step_ms"], r["ratio"]["median"], f"{r['ratio']['q1']:.2f}-{r['ratio']['q3']:.2f}")
        for name, r in results.items()
    ]
    header = ("model", "parameters", "step, ms", "relative to SASRec", "quartiles")
    title = f"Training step on {arguments.dataset}"
    common.write(arguments, f"models_{arguments.dataset}", title, common.table(header, rows), {"models": results})


if __name__ == "__main__":
    main()
