"""What a run writes besides its weights and its history, and the result it hands back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Optional

import torch
from torch import nn

from recbole_prism.config import Config
from recbole_prism.data.dataset import SequentialDataset
from recbole_prism.evaluation.ranks import Ranks
from recbole_prism.evaluation.sanity import BASELINES, check_baselines
from recbole_prism.registry import load_class, resolve
from recbole_prism.run_directory import RunDirectory, Vocabulary, environment_report
from recbole_prism.trainer import CountingTrainer, Trainer
from recbole_prism.trainer.report import peak_memory_mb

MASKED, UNMASKED = "masked", "unmasked"  # seen items removed from the candidates, or not


def n_parameters(model: nn.Module) -> int:
    """Number of trained scalars."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def write_description(directory: RunDirectory, config: Config, model: nn.Module, dataset: SequentialDataset) -> None:
    """Write what is known before training: enough to build the model again without the data."""
    entry = config.model_entry
    recipes = [origin for origin in config.origin.values() if origin.startswith("recipe ")]
    directory.write_yaml("config.yaml", config.resolved())
    directory.write_json("origin.json", {"recipe": recipes[0] if recipes else None, "origin": config.origin})
    directory.write_json(
        "model.json",
        {
            "name": entry.name,
            "display_name": entry.display_name,
            "class": entry.target,
            "origin": entry.origin,
            "properties": asdict(config.properties),
            "n_parameters": n_parameters(model),
        },
    )
    mask_token = getattr(model, "mask_token", None)
    mask_token = mask_token if isinstance(mask_token, int) else None  # a model may give a vector that name
    directory.write_json("dataset.json", replace(dataset.info, mask_token=mask_token).to_dict())
    tokens = dataset.field2id_token
    directory.write_vocabulary(
        Vocabulary(
            item_tokens=[str(token) for token in tokens[dataset.iid_field]],
            user_tokens=[str(token) for token in tokens[dataset.uid_field]],
            item_counts_train=dataset.item_counts_train,
            item_counts_all=dataset.item_counts_all,
        )
    )
    if config["save_histories"]:
        directory.write_histories(*dataset.user_histories())


def environment(config: Config, model: nn.Module, code: str) -> dict[str, Any]:
    """Contents of environment.json.

    `peak_memory_mb` is the largest of the process so far, reading the data and earlier runs included;
    `gpu_peak_memory_mb` is this run's.
    """
    device: torch.device = config["device"]
    report = environment_report(device)
    report.update(
        seed=config["seed"], code_version=code, n_parameters=n_parameters(model), peak_memory_mb=peak_memory_mb()
    )
    if device.type == "cuda":
        report["gpu_peak_memory_mb"] = torch.cuda.max_memory_allocated(device) / 1e6
    return report


def summarise(
    config: Config,
    trainer: Trainer,
    ranks: Mapping[str, Ranks],
    datasets: Mapping[str, SequentialDataset],
    seconds: Mapping[str, float],
) -> dict[str, Any]:
    """Contents of metrics.json: everything measured, in full precision.

    Args:
        config: The settings.
        trainer: After `fit`.
        ranks: By split ("valid", "test"), under the best weights.
        datasets: By split.
        seconds: Of ranking each split.
    """
    stopper = trainer.stopper
    measured = {
        split: {
            "n_rows": len(ranks[split]),
            "n_targets_in_history": int(ranks[split].target_in_history.sum()),
            "seconds": seconds[split],
            MASKED: trainer.metrics(ranks[split], datasets[split], mask_history=True),
            UNMASKED: trainer.metrics(ranks[split], datasets[split], mask_history=False),
        }
        for split in ranks
    }
    return {
        "epoch": trainer.next_epoch - 1 if stopper.best_score is None else stopper.best_epoch,
        "n_epochs": trainer.next_epoch,
        "best_valid_score": stopper.best_score,
        "valid_metric": config["valid_metric"],
        "valid_metric_bigger": config["valid_metric_bigger"],
        "protocol": {
            "eval_args": config.resolved()["eval_args"],
            "mask_history": config["mask_history"],
            "n_candidates": datasets["test"].item_num - 1,
            "ties": "expectation over their random order",
        },
        "splits": measured,
        "seconds": {
            "train": sum(record["train_seconds"] for record in trainer.history),
            "valid": sum(record["valid_seconds"] for record in trainer.history),
            "test": seconds["test"],
        },
    }


def result_of(config: Config, metrics: Mapping[str, Any], path: Optional[Path], reused: bool) -> dict[str, Any]:
    """The dict that a run returns: RecBole's four keys and this package's.

    Args:
        config: The settings.
        metrics: Contents of metrics.json.
        path: The run directory, if there is one.
        reused: Whether nothing was trained because the run was there already.
    """
    protocol = MASKED if config["mask_history"] else UNMASKED
    valid, test = metrics["splits"]["valid"], metrics["splits"]["test"]
    return {
        "best_valid_score": metrics["best_valid_score"],
        "valid_score_bigger": metrics["valid_metric_bigger"],
        "best_valid_result": valid[protocol],
        "test_result": test[protocol],
        "test_result_masked": test[MASKED],
        "test_result_unmasked": test[UNMASKED],
        "model": config.model_entry.name,
        "dataset": config["dataset"],
        "seed": config["seed"],
        "epoch": metrics["epoch"],
        "n_epochs": metrics["n_epochs"],
        "seconds": sum(metrics["seconds"].values()),
        "run_directory": None if path is None else str(path),
        "reused": reused,
    }


def compare_with_counting(
    config: Config, score: Optional[float], loaders: tuple[Any, Any, Any]
) -> Optional[dict[str, float]]:
    """The validation metric of models that count, with a warning where a trained one is no better.

    Args:
        config: Of the trained model.
        score: Its best validation metric; None without validation.
        loaders: Of train, valid and test.

    Returns:
        Name -> validation metric; None without validation.
    """
    train, valid, _ = loaders
    if score is None:
        return None
    rows = train.our_rows if config.model_entry.origin == "stock" else train.dataset
    scores = {}
    for name in BASELINES:
        model = load_class(resolve(name))(config, train.info).to(config["device"])
        model.count(rows)
        scores[name] = CountingTrainer(config, model).evaluate(valid)[config["valid_metric"].lower()]
    name, metric = config.model_entry.display_name, config["valid_metric"]
    check_baselines(name, metric, score, scores, config["valid_metric_bigger"])
    return scores
