"""What a training step must compute and move, what this machine can do, and how close each path comes.

FLOPs count every multiplication and addition of the matrix products, forward and backward (3 x forward); element-wise
work is left out. Bytes are a lower bound: parameters, gradients and Adam's state once, the logits written once and read
twice, and the activations that memory.py found alive, written once and read once. Step times and peaks come from the
JSON files of training.py and memory.py in the output folder.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from typing import Any, Callable

import common
import torch
from torch import Tensor

from recbole_prism.model.layers.packed import pack


@dataclass(frozen=True)
class Sizes:
    """d, inner width, heads are those of the common protocol."""

    n_items: int
    longest: int
    n_rows: int = 256
    d: int = 64
    inner: int = 256
    n_lenses: int = 4


def layer(tokens: float, cells: float, s: Sizes) -> float:
    """Forward FLOPs of a transformer layer over tokens, with `cells` attention cells."""
    return tokens * (8 * s.d**2 + 4 * s.d * s.inner) + cells * 4 * s.d


def last_layer(tokens: float, padded: float, rows: float, s: Sizes) -> float:
    """Keys and values everywhere, all else at one position of each row."""
    return tokens * 4 * s.d**2 + rows * (4 * s.d**2 + 4 * s.d * s.inner) + padded * 4 * s.d


def head(s: Sizes) -> float:
    return 2.0 * s.n_rows * s.n_items * s.d


def stock_step(s: Sizes) -> float:
    tokens, cells = s.n_rows * s.longest, s.n_rows * s.longest**2
    return 3 * (2 * layer(tokens, cells, s) + head(s))


def sasrec_step(work: dict[str, float], s: Sizes) -> float:
    fast = layer(work["tokens"], work["cells"], s) + last_layer(work["tokens"], work["padded"], s.n_rows, s)
    return 3 * (fast + head(s))


def prism_step(anchor: dict[str, float], both: dict[str, float], s: Sizes) -> dict[str, float]:
    """By part; `both`: anchors and partners, `anchor`: anchors alone."""
    k, tokens = s.n_lenses, both["tokens"]
    three = both["tokens"] + anchor["tokens"]
    parts = {
        "first layer": layer(tokens, both["cells"], s),
        "lenses": tokens * 2 * s.d**2 * (1 + k) + both["cells"] * 2 * k * s.d + both["padded"] * 2 * k * k * s.d,
        "synthesis": three * (4 * s.d * s.inner + 2 * k * s.d),
        "last layer": last_layer(three, both["padded"] + anchor["padded"], 3 * s.n_rows, s),
        "consistency": anchor["tokens"] * k * s.n_rows * (2 * s.d + 2 * k),
        "contrast": 2.0 * (2 * s.n_rows) ** 2 * s.d,
        "softmax over items": head(s),
    }
    return {name: 3 * flops for name, flops in parts.items()}


def work_of(branches: list[tuple[Tensor, Tensor]]) -> dict[str, float]:
    """Valid tokens, attention cells and padded positions of a packed batch."""
    groups = pack(branches).groups
    return {
        "tokens": float(sum(int(length.sum()) for _, length in branches)),
        "cells": float(sum(group.n_rows * group.width**2 for group in groups)),
        "padded": float(sum(group.n_rows * group.width for group in groups)),
    }


def best(call: Callable[[], Any], repetitions: int = 5) -> float:
    """Least CPU seconds of a call."""
    seconds = []
    for _ in range(repetitions):
        before = time.process_time()
        call()
        seconds.append(time.process_time() - before)
    return min(seconds)


def peaks() -> tuple[float, float]:
    """FLOP/s of a large matrix product and bytes/s of a large copy."""
    a, b = torch.randn(1024, 1024), torch.randn(1024, 1024)
    source = torch.zeros(1 << 26)
    target = torch.empty_like(source)
    return 2 * 1024**3 / best(lambda: a @ b), 2 * 4 * source.numel() / best(lambda: target.copy_(source))


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--dataset", default="amazon-toys")
    parser.add_argument("--batches", type=int, default=8)
    arguments = common.parse(parser)
    flop_rate, byte_rate = peaks()
    contender = common.ours("PRISM", "PRISM", arguments.dataset, arguments)
    sizes = Sizes(contender.loaders[0].info.n_items, contender.config["MAX_ITEM_LIST_LENGTH"])
    n_parameters = sum(p.numel() for p in contender.model.parameters())
    works = []
    batches = common.endless(contender.loaders[0])
    for _ in range(arguments.batches):
        batch = next(batches)
        anchor = (batch["item_id_list"], batch["item_length"])
        partner = (batch["partner_item_id_list"], batch["partner_item_length"])
        works.append((work_of([anchor]), work_of([anchor, partner])))
    anchor_work, both_work = ({key: sum(w[i][key] for w in works) / len(works) for key in works[0][i]} for i in (0, 1))
    parts = prism_step(anchor_work, both_work, sizes)
    flops = {
        "stock SASRec, anomaly detection off": stock_step(sizes),
        "SASRec": sasrec_step(anchor_work, sizes),
        "PRISM (K=4, all losses)": sum(parts.values()),
    }
    write(arguments, flops, parts, n_parameters, sizes, (flop_rate, byte_rate))


def stored(arguments: argparse.Namespace, name: str) -> dict[str, Any]:
    file = arguments.output / f"{name}.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def write(
    arguments: argparse.Namespace,
    flops: dict[str, float],
    parts: dict[str, float],
    n_parameters: int,
    sizes: Sizes,
    rates: tuple[float, float],
) -> None:
    steps = stored(arguments, f"training_{arguments.dataset}").get("contenders", {})
    memory = stored(arguments, "memory").get("megabytes", {}).get(arguments.dataset, {})
    alive = {
        "stock SASRec, anomaly detection off": memory.get("stock SASRec", 0.0),
        "SASRec": memory.get("SASRec", 0.0),
        "PRISM (K=4, all losses)": memory.get("PRISM K=4", 0.0),
    }
    rows, reference = [], flops["stock SASRec, anomaly detection off"]
    for name, count in flops.items():
        moved = 8 * 4 * n_parameters + 3 * 4 * sizes.n_rows * sizes.n_items + 2e6 * alive[name]
        floor = max(count / rates[0], moved / rates[1]) * 1e3
        step = steps.get(name, {}).get("step_ms", float("nan"))
        rows.append((name, count / 1e9, count / reference, moved / 1e6, floor, step, f"{floor / step:.0%}"))
    header = ("path", "GFLOP", "ratio", "MB moved", "least ms", "measured ms", "of the floor reached")
    by_part = [(name, count / 1e9, f"{count / sum(parts.values()):.0%}") for name, count in parts.items()]
    text = (
        f"Measured peaks of one thread: {rates[0] / 1e9:.0f} GFLOP/s (product of 1024 x 1024), "
        f"{rates[1] / 1e9:.1f} GB/s (copy).\n\n{common.table(header, rows)}\n\n"
        f"A PRISM step by part:\n\n{common.table(('part', 'GFLOP', 'share'), by_part)}"
    )
    values = {"flops": flops, "prism_parts": parts, "flop_rate": rates[0], "byte_rate": rates[1]}
    common.write(arguments, "cost_model", f"Cost model, {arguments.dataset}", text, values)


if __name__ == "__main__":
    main()
