"""What RecBole's training and testing cost BERT4Rec: counted on the data, and measured by training both ways.

    python benchmarks/bert4rec_handicaps.py                               # counts and 20 epochs each on ml-100k
    python benchmarks/bert4rec_handicaps.py --dataset=amazon-toys --data_path=... --epochs=0   # counts only

Writes results/bert4rec/<dataset>.json and .md. The stock side is `cloze: recbole`, which tests/model/test_bert4rec.py
shows to be RecBole's class in losses, gradients and scores; the batches for the number of workers are RecBole's own.
"""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path
from typing import Any, Iterator

import common
import numpy as np
import torch

from recbole_prism.config import Config
from recbole_prism.data.preparation import create_dataset, data_preparation
from recbole_prism.trainer import Trainer, seed_everything

STYLES = ("repaired", "recbole")


def build(arguments: argparse.Namespace, model: str, **more: Any) -> tuple[Config, tuple[Any, Any, Any]]:
    """Config and loaders of a model."""
    config = Config(model=model, dataset=arguments.dataset, config_dict=common.settings(arguments, **more))
    return config, data_preparation(config, create_dataset(config))


def counts(arguments: argparse.Namespace) -> dict[str, float]:
    """Shares of test rows, masks and events that RecBole's rules leave out, in one epoch."""
    config, (train, _, test) = build(arguments, "BERT4Rec", cloze="recbole")
    lengths = test.dataset.rows.end - test.dataset.rows.start
    masked = at_start = unlabelled = rows = silent = 0
    for batch in train:
        is_mask = batch["cloze_item_id_list"] == train.dataset.item_num
        counted = batch["cloze_labels"] > 0
        masked += int(is_mask.sum())
        at_start += int(is_mask[:, 0].sum())
        unlabelled += int((is_mask & ~counted).sum())
        rows += len(batch)
        silent += int((~counted.any(dim=1)).sum())
    users = np.unique(train.dataset.rows.user)
    return {
        "test rows whose oldest item is dropped though there is room": float(np.mean(lengths < config_length(config))),
        "test rows left with the mask alone": float(np.mean(lengths == 1)),
        "masks at position 0, never in the loss": at_start / masked,
        "masks beyond the last int(mask_ratio * T) of a row, never in the loss": (unlabelled - at_start) / masked,
        "training rows of an epoch that teach nothing": silent / rows,
        "training events that are never a target: each user's last": len(users) / (len(train.dataset) + len(users)),
    }


def config_length(config: Config) -> int:
    return int(config["MAX_ITEM_LIST_LENGTH"])


def masks_of_recbole(arguments: argparse.Namespace, n_workers: int, n_batches: int) -> Iterator[torch.Tensor]:
    """The first masked batches of RecBole's own loader after seeding as for a run."""
    config, (train, _, _) = build(arguments, "recbole:BERT4Rec", worker=n_workers)
    seed_everything(config["seed"])
    for batch in itertools.islice(iter(train), n_batches):
        yield batch["Mask_item_id_list"]


def changed_by_workers(arguments: argparse.Namespace, n_batches: int = 8) -> dict[str, float]:
    """Share of the first batches that another number of workers masks otherwise."""
    alone = list(masks_of_recbole(arguments, 0, n_batches))
    shares = {}
    for n_workers in (2, 3):
        pairs = zip(alone, masks_of_recbole(arguments, n_workers, n_batches))
        shares[f"RecBole, {n_workers} workers against none"] = float(np.mean([not torch.equal(a, b) for a, b in pairs]))
    (_, (one, _, _)), (_, (other, _, _)) = (build(arguments, "BERT4Rec", worker=n_workers) for n_workers in (0, 2))
    pairs = itertools.islice(zip(one, other), n_batches)
    differ = [not torch.equal(a["cloze_item_id_list"], b["cloze_item_id_list"]) for a, b in pairs]
    return {**shares, "this package, 2 workers against none": float(np.mean(differ))}


def accuracy(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Train by each style's rules; test the best weights by both styles' rules."""
    rows = []
    for trained in STYLES:
        config, (train, valid, test) = build(arguments, "BERT4Rec", cloze=trained, epochs=arguments.epochs)
        seed_everything(config["seed"])
        model = config.model_class(config, train.info)
        trainer = Trainer(config, model)
        trainer.fit(train, valid, verbose=False)
        for tested in STYLES:
            model.cloze_style = tested
            metrics = trainer.evaluate(test)
            rows.append({"trained": trained, "tested": tested, "best epoch": trainer.stopper.best_epoch, **metrics})
    return rows


def markdown(found: dict[str, Any]) -> str:
    """The page of results."""
    lines = [f"# BERT4Rec by RecBole's rules and repaired: {found['dataset']}", ""]
    lines += [f"Command: `{found['command']}`; seed 2020, T = {found['T']}.", ""]
    heads = {"counts": "What RecBole's rules leave out", "workers": "First batches that other workers mask otherwise"}
    for title, head in heads.items():
        lines += [f"| {head} | share |", "|---|---|"]
        lines += [f"| {name} | {share:.1%} |" for name, share in found[title].items()] + [""]
    if found["accuracy"]:
        names = list(found["accuracy"][0])
        lines += ["Test metrics, seen items removed.", "", "| " + " | ".join(names) + " |", "|---" * len(names) + "|"]
        for row in found["accuracy"]:
            shown = [f"{value:.4f}" if isinstance(value, float) else str(value) for value in row.values()]
            lines.append("| " + " | ".join(shown) + " |")
    return "\n".join(lines).rstrip() + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="ml-100k")
    parser.add_argument("--data_path", type=Path)
    parser.add_argument("--epochs", type=int, default=20, help="0: counts only")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=common.ROOT / "results" / "bert4rec")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    config, _ = build(arguments, "BERT4Rec")
    found = {
        "dataset": arguments.dataset,
        "command": f"python benchmarks/bert4rec_handicaps.py --dataset={arguments.dataset} --epochs={arguments.epochs}",
        "T": config_length(config),
        "counts": counts(arguments),
        "workers": changed_by_workers(arguments),
        "accuracy": accuracy(arguments) if arguments.epochs else [],
    }
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / f"{arguments.dataset}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    (arguments.out / f"{arguments.dataset}.md").write_text(markdown(found), encoding="utf-8")
    print(markdown(found))


if __name__ == "__main__":
    main()
