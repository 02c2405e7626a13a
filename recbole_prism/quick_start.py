"""From settings to a result in RecBole's five steps, and from a run directory back to a model."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional, Union

import torch
from recbole.data.transform import construct_transform
from torch import nn

from recbole_prism import registry
from recbole_prism.config import Config, check_topk
from recbole_prism.data.dataset_info import DatasetInfo, NotOfferedError
from recbole_prism.data.preparation import create_dataset, data_preparation
from recbole_prism.data.prepare import config_with_data
from recbole_prism.errors import ModelError, RecBolePrismError
from recbole_prism.evaluation.diversity import check_diversity
from recbole_prism.run_directory import (
    RunArtifact,
    RunDirectory,
    class_source,
    code_version,
    compute_identity,
    describe_device,
    read_run,
)
from recbole_prism.run_files import read_json
from recbole_prism.run_log import RunLog
from recbole_prism.run_outputs import (
    compare_with_counting,
    environment,
    n_parameters,
    result_of,
    summarise,
    write_description,
)
from recbole_prism.schema import MAX_LIST_LENGTH
from recbole_prism.trainer import CountingTrainer, Trainer, seed_everything
from recbole_prism.trainer.resume import failure_marked
from recbole_prism.trainer.trainer import Callback

logger = logging.getLogger("recbole_prism")


def run(
    model: Union[str, type, None] = None,
    dataset: Optional[str] = None,
    config_file_list: Optional[list[str]] = None,
    config_dict: Optional[Mapping[str, Any]] = None,
    command_line: Optional[Mapping[str, Any]] = None,
    saved: bool = True,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Train a model, test its best weights, and store everything in a run directory.

    A complete run of the same settings, data, code and seed is not trained again: its stored result is returned. An
    interrupted one is gone on from.

    Args:
        model: Name as in `--model=`, or a class.
        dataset: Name of the data set.
        config_file_list: Settings files, the last one strongest.
        config_dict: Settings of the caller.
        command_line: Settings parsed from the command line; the strongest.
        saved: Write a run directory under `checkpoint_dir`. False keeps everything in memory.
        overwrite: Train anew whatever is there.

    Returns:
        best_valid_score, valid_score_bigger, best_valid_result, test_result (unrounded, under `mask_history`), and
        test_result_masked, test_result_unmasked, model, dataset, seed, epoch (the best one), n_epochs, seconds,
        run_directory, reused.

    Raises:
        RecBolePrismError: For everything a user can do something about.
    """
    with RunLog() as log:
        config = config_with_data(model, dataset, config_file_list, config_dict, command_line)
        if config.origin["state"] != "default":
            log.set_level(config["state"])
        with _torch_threads(config["n_threads"]):
            return _run(config, log, saved, overwrite)


def train(config_dict: Mapping[str, Any], callback_fn: Optional[Callback] = None) -> dict[str, Any]:
    """The training of `run` without its test: a trial of a search, which must not see a test row.

    It leaves an unfinished run directory. `run` with the same settings takes it over, goes on where it ended (with the
    test alone, if it stopped by itself). A run that is there already, complete or not, is not begun anew.

    Args:
        config_dict: Settings, model and dataset included.
        callback_fn: Called as `callback_fn(epoch, valid_score)` after each evaluation, those of an earlier attempt at
            the same run first.

    Returns:
        best_valid_score, epoch (the best one), n_epochs, run_directory.

    Raises:
        RecBolePrismError: For everything a user can do something about.
    """
    with RunLog() as log:
        config = config_with_data(config_dict=config_dict)
        with _torch_threads(config["n_threads"]):
            loaders = _read(config, saved=True)
            directory = _open_directory(config, loaders[0].info, overwrite=False)
            history = directory.read_history()
            if callback_fn is not None:
                callback_fn = _each_epoch_once(callback_fn, history, config["valid_metric"].lower())
            if directory.is_complete:
                directory.verify()
                metrics = read_json(directory.path / "metrics.json")
                found = {key: metrics[key] for key in ("best_valid_score", "epoch", "n_epochs")}
            else:
                log.write_to(directory.path)
                with failure_marked(directory):
                    trainer = _train(config, loaders, directory, callback_fn)
                directory.fail("trained without a test; a run of the same settings goes on and tests it")
                stopper = trainer.stopper
                found = {"best_valid_score": stopper.best_score, "epoch": stopper.best_epoch}
                found["n_epochs"] = trainer.next_epoch
            return {**found, "run_directory": str(directory.path)}


def _each_epoch_once(callback_fn: Callback, history: list[dict[str, Any]], metric: str) -> Callback:
    """Call for the evaluated epochs of a history, and give a callback that leaves those out."""
    evaluated = {record["epoch"]: record["valid"][metric] for record in history if record["valid"] is not None}
    for epoch, score in evaluated.items():
        callback_fn(epoch, score)

    def of_new_epochs(epoch: int, score: float) -> None:
        if epoch not in evaluated:  # a kill between the two writes repeats an epoch
            callback_fn(epoch, score)

    return of_new_epochs


def _run(config: Config, log: RunLog, saved: bool, overwrite: bool) -> dict[str, Any]:
    loaders = _read(config, saved)
    if not saved:
        metrics = _test(config, _train(config, loaders, None), loaders, None)
        return result_of(config, metrics, None, reused=False)
    directory = _open_directory(config, loaders[0].info, overwrite)
    if directory.is_complete:
        directory.verify()
        logger.info("this run is complete already; its stored result is reused (overwrite trains it again)")
        return result_of(config, read_json(directory.path / "metrics.json"), directory.path, reused=True)
    log.write_to(directory.path)
    with failure_marked(directory), _earlier_result_told(directory):
        metrics = _test(config, _train(config, loaders, directory), loaders, directory)
        log.close_file()
        directory.complete()
    return result_of(config, metrics, directory.path, reused=False)


def _read(config: Config, saved: bool) -> tuple[Any, Any, Any]:
    """Say what the settings are, try the place of the results, and make the loaders of train, valid and test."""
    seed_everything(config["seed"], config["reproducibility"])
    for key, (value, origin) in config.changes().items():
        logger.info("%s: %s (%s)", key, value, origin)
    logger.info("device: %s", describe_device(config["device"]))
    if config["device"].type == "cuda":
        torch.cuda.reset_peak_memory_stats(config["device"])  # what is reported is this run's
    if saved:
        RunDirectory.check_writable(config["checkpoint_dir"], config["dataset"])
    with _stock_failure(config, "read its data"):
        data = create_dataset(config)
    check_topk(config, data.item_num - 1)
    loaders = data_preparation(config, data)
    info = loaders[0].info
    logger.info(
        "%s: %d users, %d items, %d events; rows: %d train, %d valid, %d test",
        *(info.name, info.n_users - 1, info.n_items - 1, info.n_interactions),
        *(info.n_train_rows, info.n_valid_rows, info.n_test_rows),
    )
    return loaders


def _train(
    config: Config,
    loaders: tuple[Any, Any, Any],
    directory: Optional[RunDirectory],
    callback_fn: Optional[Callback] = None,
) -> Trainer:
    """Build and train a model."""
    train, valid, test = loaders
    seed_everything(config["seed"], config["reproducibility"])  # again: weights do not depend on how data was read
    # RecBole's own classes on RecBole's own data path get its data set; all others must do with its description
    source = train._dataset if config.model_entry.origin == "stock" else train.info
    with _stock_failure(config, "be built"):
        model = config.model_class(config, source).to(config["device"])
    if n_parameters(model) == 0 and not config.properties.counted:
        raise ModelError(
            f"the model {config.model_entry.name} has no parameters to train",
            "assign its layers and nn.Parameter tensors to self in __init__, and leave requires_grad on",
        )
    logger.info("%s: %s parameters", config.model_entry.display_name, f"{n_parameters(model):,}")
    if directory is not None:
        write_description(directory, config, model, test.dataset)
    trainer = (CountingTrainer if config.properties.counted else Trainer)(config, model, directory)
    with _stock_failure(config, "be trained"):
        trainer.fit(train, valid, show_progress=config["show_progress"], callback_fn=callback_fn)
    return trainer


def _test(
    config: Config, trainer: Trainer, loaders: tuple[Any, Any, Any], directory: Optional[RunDirectory]
) -> dict[str, Any]:
    """Rank with the best weights, fill the run directory, and return the contents of metrics.json."""
    _, valid, test = loaders
    trainer.load_best_weights()
    ranks, seconds = {}, {}
    for split, loader in (("valid", valid), ("test", test)):
        clock = time.perf_counter()
        ranks[split] = trainer.rank(loader, n_top=MAX_LIST_LENGTH, show_progress=config["show_progress"])
        seconds[split] = time.perf_counter() - clock
    metrics = summarise(config, trainer, ranks, {"valid": valid.dataset, "test": test.dataset}, seconds)
    _log_result(config, metrics)
    if not config.properties.counted:
        check_diversity(ranks["test"], test.dataset.item_num)
        metrics["baselines"] = compare_with_counting(config, metrics["best_valid_score"], loaders)
    if directory is not None:
        directory.write_ranks(ranks)
        directory.write_json("metrics.json", metrics)
        directory.write_json("environment.json", environment(config, trainer.model, _code_version(config)))
    return metrics


def _open_directory(config: Config, info: DatasetInfo, overwrite: bool) -> RunDirectory:
    identity = identity_of(config, info.fingerprint)
    name, seed = config.model_entry.name, config["seed"]
    directory = RunDirectory.open(config["checkpoint_dir"], config["dataset"], name, identity, seed, overwrite)
    logger.info("run directory: %s", directory.path)
    return directory


def identity_of(config: Config, fingerprint: str) -> str:
    """The part of a run directory's name that stands for settings, data and code.

    Args:
        config: The settings.
        fingerprint: Of the data set after splitting (`DatasetInfo.fingerprint`).
    """
    return compute_identity(config.identity_values(), fingerprint, _code_version(config))


@contextmanager
def _earlier_result_told(directory: RunDirectory) -> Iterator[None]:
    """Say where the complete run is that a failing one was to replace."""
    try:
        yield
    except BaseException:
        if directory.replaced.is_dir():
            logger.warning("the earlier complete run is kept in %s", directory.replaced)
        raise


def _code_version(config: Config) -> str:
    """Hash of the sources a result depends on; that of a model from outside is one of them."""
    if config.model_entry.origin in ("user", "entry_point"):
        return code_version(extra=class_source(config.model_class))
    return code_version(config.model_entry.target.partition(":")[0])


@contextmanager
def _stock_failure(config: Config, step: str, cure: str = "") -> Iterator[None]:
    """Name model, cause and cure where RecBole's own class, on RecBole's own data path, fails with a raw error."""
    try:
        yield
    except (OSError, MemoryError, torch.cuda.OutOfMemoryError):
        raise
    except Exception as error:
        is_explained = isinstance(error, RecBolePrismError) and not isinstance(error, NotOfferedError)
        if config.model_entry.origin != "stock" or is_explained:
            raise
        cause = error.cause if isinstance(error, NotOfferedError) else f"{type(error).__name__}: {error}"
        raise ModelError(
            f"RecBole's own class {config.model_entry.name} cannot {step}: {cause}",
            cure
            or "it may need more than (user, item, time): item features (load_col with an .item file), a "
            "knowledge graph, or more items; see its page in RecBole's documentation",
        ) from error


def _log_result(config: Config, metrics: Mapping[str, Any]) -> None:
    test = metrics["splits"]["test"]
    for name in ("masked", "unmasked"):
        numbers = ", ".join(f"{key} {value:.{config['metric_decimal_place']}f}" for key, value in test[name].items())
        logger.info("test, seen items %s: %s", "removed" if name == "masked" else "left in", numbers or "no rows")
    if test["n_targets_in_history"]:
        logger.info(
            "%d of %d test targets are in their user's own history: misses where seen items are removed",
            *(test["n_targets_in_history"], test["n_rows"]),
        )


@contextmanager
def _torch_threads(n_threads: Optional[int]) -> Iterator[None]:
    """Use so many torch threads inside; None leaves them as they are."""
    before = torch.get_num_threads()
    if n_threads is not None:
        torch.set_num_threads(n_threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True)
class LoadedModel:
    """A trained model with what is needed to use it; no data file is read.

    Attributes:
        model: In evaluation mode, with its best weights.
        config: The settings it was trained with, on the device asked for.
        info: Counts and field names of its data set.
        item_tokens: Raw item ids by index; index 0 is padding.
        item_ids: Index of each raw item id, without padding.
        run: All files of the run, read when first asked for: ranks, histories, user vocabulary, ...
    """

    model: nn.Module
    config: Config
    info: DatasetInfo
    item_tokens: list[str]
    item_ids: dict[str, int]
    run: RunArtifact

    @property
    def metrics(self) -> dict[str, Any]:
        """metrics.json."""
        return self.run.metrics

    @property
    def history(self) -> list[dict[str, Any]]:
        """One record per epoch."""
        return self.run.history


def load(path: Union[str, Path], device: str = "auto") -> LoadedModel:
    """Build the model of a complete run, anywhere and without its data; it scores as it did when it was tested.

    Args:
        path: The run directory.
        device: auto, cpu, cuda or cuda:N, whatever the model was trained on.

    Raises:
        RunDirectoryError: The run is not complete, or a file of it is damaged.
        ModelError: The class of a model from outside this package cannot be imported.
    """
    artifact = read_run(path)
    _check_importable(artifact.model)
    config = Config(config_dict={**artifact.config, "device": device}, require_data=False)
    if config["transform"] is not None:
        construct_transform(config)  # writes names into the config that the model reads
    info = DatasetInfo.from_dict(artifact.dataset)
    with _stock_failure(
        config, "be built without its data", "it asks more of its data set than counts; run it again where the data is"
    ):
        model = registry.load_class(config.model_entry)(config, info).to(config["device"])
    model.load_state_dict(artifact.weights(config["device"]))
    model.eval()
    tokens = list(artifact.vocabulary.item_tokens)
    ids = {token: index for index, token in enumerate(tokens) if index > 0}
    return LoadedModel(model, config, info, tokens, ids, artifact)


def _check_importable(description: Mapping[str, Any]) -> None:
    """Say clearly why the class of a run that was typed into a session is not found.

    Args:
        description: Contents of model.json.
    """
    module, _, name = description["class"].partition(":")
    if module != "__main__" and "<locals>" not in name:
        return
    try:
        registry.load_class(registry.resolve(description["class"]))
    except ModelError as error:
        place = "inside a function" if "<locals>" in name else "in a notebook, a prompt or a script"
        raise ModelError(
            f"the run's class {name} was defined {place}, not in a module, so it cannot be imported here",
            f"put it into a file and train with --model=my_file:{description['name']}"
            + ("" if "<locals>" in name else "; or define it again in this session, then load"),
        ) from error
