"""The checks of Config: what can be refused before data is read is refused here, with the nearest name and the cure."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Mapping, Optional, Sequence

import yaml
from recbole.utils import InputType

from recbole_prism import config_columns, config_values, settings_files
from recbole_prism.errors import ConfigError, DataError
from recbole_prism.registry import ModelEntry, nearest
from recbole_prism.schema import LIST_METRICS, MAX_LIST_LENGTH, RECBOLE_KEYS, SCHEMA, SUPPORTED_METRICS, Key, infer

# RecBole's keys that do nothing or do harm here: the only accepted values, and what to do instead.
_DEVICE = "set device: auto, cpu, cuda or cuda:N"
_ONE_PROCESS = "this version trains in one process"
_NO_CACHE = "no cache of RecBole's (a pickle) is kept; data_cache: True keeps what was read"
_REFUSED: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "gpu_id": (("0", 0), _DEVICE),
    "use_gpu": ((True,), _DEVICE),
    **dict.fromkeys(("nproc", "world_size", "local_rank", "offset", "group_offset"), ((None, 0, 1), _ONE_PROCESS)),
    **dict.fromkeys(("ip", "port", "single_spec"), ((), _ONE_PROCESS)),
    "enable_amp": ((False,), "this version trains in float32"),
    "enable_scaler": ((False,), "this version trains in float32"),
    "save_dataset": ((False,), _NO_CACHE),
    "dataset_save_path": ((None,), _NO_CACHE),
    "save_dataloaders": ((False,), _NO_CACHE),
    "dataloaders_save_path": ((None,), _NO_CACHE),
    "log_wandb": ((False,), "the run directory holds history.jsonl and metrics.json; log from there"),
    "wandb_project": (("recbole",), "the run directory holds history.jsonl and metrics.json; log from there"),
    "repeatable": ((True,), "RecBole's sequential models accept only repeatable: True"),
    "valid_metric_bigger": ((), "it follows from valid_metric"),
    "neg_sampling": ((None,), "RecBole replaced it by train_neg_sample_args"),
    "training_neg_sample_num": ((None,), "RecBole replaced it by train_neg_sample_args"),
    "config_file": ((None,), "name settings files with --config_files"),
}
_EVAL_ARGS = ("split", "order", "group_by", "mode")
_PHASES = ("valid", "test")
_LEAVE_ONE_OUT = ("valid_and_test", "valid_only", "test_only")


def merge_eval_args(weaker: Mapping[str, Any], given: Mapping[str, Any], origin: str) -> dict[str, Any]:
    """Lay the given parts of eval_args over the weaker ones; `mode` is kept per phase.

    Raises:
        ConfigError: A part is unknown.
    """
    merged = dict(weaker)
    for part, value in given.items():
        if part not in _EVAL_ARGS:
            raise _unknown(f"eval_args.{part}", part, _EVAL_ARGS, origin)
        if part == "mode":
            phases = value if isinstance(value, dict) else dict.fromkeys(_PHASES, value)
            wrong = [phase for phase in phases if phase not in _PHASES]
            if wrong:
                raise _unknown(f"eval_args.mode.{wrong[0]}", wrong[0], _PHASES, origin)
            value = {**merged.get("mode", {}), **phases}
        merged[part] = value
    return merged


def check_all(
    values: Mapping[str, Any],
    origin: Mapping[str, str],
    entry: ModelEntry,
    model_class: type,
    defaults: Mapping[str, Any],
    model_defaults: Mapping[str, Any],
) -> None:
    """Check every key and value, then what must fit together.

    Args:
        values: The merged settings.
        origin: Where each came from.
        entry: What the registry knows of the model.
        model_class: The model.
        defaults: The settings before the caller's: RecBole's, this package's, the model's, the data set's.
        model_defaults: The model's alone.

    Raises:
        ConfigError: On the first thing wrong.
    """
    keys = _known_keys(entry, defaults, model_defaults)
    for name in values:
        if name not in keys:
            raise _unknown_key(name, origin[name], entry, keys)
    for name, value in values.items():
        expected = keys[name].problem(value)
        if expected is not None:
            cause = f"{name} is {value!r} ({_kind(value)}), expected {expected} (from {origin[name]})"
            raise ConfigError(cause, _hint(value, keys[name]) or _example(name, defaults.get(name)))
    for name, (accepted, cure) in _REFUSED.items():
        if name in values and not any(values[name] == a and type(values[name]) is type(a) for a in accepted):
            raise ConfigError(f"{name} = {values[name]!r} is not supported (from {origin[name]})", cure)
    if values.get("transform") != defaults.get("transform"):
        raise ConfigError(f"transform is not supported (from {origin['transform']})", "a model brings its own")
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", values["device"]):
        raise ConfigError(f"device is {values['device']!r} (from {origin['device']})", _DEVICE)
    config_values.check_values(values, origin)
    config_values.check_effect(values, origin, entry, defaults)
    config_values.check_compile(values, origin, entry)
    config_columns.check_names(values, origin)
    config_columns.check_form(values, origin, entry)
    _check_eval_args(values["eval_args"], origin["eval_args"])
    _check_metrics(values, origin)
    _check_loss(values, origin, entry, model_class)
    _check_sizes(values, entry)
    _check_official(values, origin, defaults)


def is_pairwise(model_class: type, values: Mapping[str, Any]) -> bool:
    """Whether a model learns from (positive, negative) pairs, as RecBole decides it."""
    declared = getattr(model_class, "input_type", None)
    return declared == InputType.PAIRWISE or (declared is None and values.get("loss_type") == "BPR")


def check_dataset(values: Mapping[str, Any], properties: Path) -> None:
    """Refuse a data set whose atomic file is not there, with the nearest name that is.

    Raises:
        DataError: The file is missing.
    """
    name, root = values["dataset"], Path(values["data_path"])
    folder = config_columns.dataset_folder(values)
    missing = [file for file in config_columns.inter_names(values) if not (folder / file).is_file()]
    if not missing:
        return
    present = {"ml-100k"} | {path.name for path in root.glob("*") if (path / f"{path.name}.inter").is_file()}
    described = {path.stem for path in (properties / "dataset").glob("*.yaml")}
    cure = f"put it there, or set data_path (now {root}) to the folder that holds {name}/"
    if name in described:
        cure = f"`recbole-prism prepare {name}` makes it; or {cure}"
    if folder.is_dir() or name in described:
        raise DataError(f"the data set {name} needs the atomic file {folder / missing[0]}", cure)
    guess = nearest(name, present | described)
    known = f"did you mean {guess}?" if guess else f"present: {', '.join(sorted(present))}"
    raise DataError(f"unknown data set {name!r}: there is no {folder / missing[0]}", f"{known} Own data: {cure}")


def _known_keys(entry: ModelEntry, defaults: Mapping[str, Any], model_defaults: Mapping[str, Any]) -> dict[str, Key]:
    """Key table for one model: RecBole's keys, the common ones, and the model's."""
    keys = dict(RECBOLE_KEYS)
    foreign = model_defaults.keys() if entry.origin not in ("own", "recbole") else frozenset()
    for name, default in defaults.items():
        if name not in keys:
            keys[name] = infer(default) if name in foreign or name not in SCHEMA else SCHEMA[name]
            if entry.origin == "stock" and name in foreign and keys[name].types == (int,):
                keys[name] = infer(float(default))  # RecBole's files write 1 where 1.0 is meant
    return keys


def _check_eval_args(eval_args: Mapping[str, Any], origin: str) -> None:
    for phase, mode in eval_args["mode"].items():
        if mode != "full":
            raise ConfigError(
                f"evaluation mode {mode!r} for {phase} is not supported (from {origin})",
                "only mode: full, which ranks all items; metrics over sampled candidates mislead",
            )
    if eval_args["order"] != "TO":
        raise ConfigError(
            f"eval_args.order is {eval_args['order']!r} (from {origin})", "sequential models need order: TO"
        )
    if eval_args["group_by"] not in ("user", "none", None):
        raise ConfigError(f"eval_args.group_by is {eval_args['group_by']!r} (from {origin})", "write group_by: user")
    split = eval_args["split"]
    if not (isinstance(split, dict) and len(split) == 1):
        raise ConfigError(f"eval_args.split is {split!r} (from {origin})", "write split: {LS: valid_and_test}")
    ((kind, how),) = split.items()
    if kind not in ("LS", "RS", "TS") or not (
        how in _LEAVE_ONE_OUT if kind == "LS" else config_values.are_shares(how)  # of train, valid and test
    ):
        cure = f"{{LS: x}} with x one of {', '.join(_LEAVE_ONE_OUT)}; {{RS: [0.8, 0.1, 0.1]}}; {{TS: [0.8, 0.1, 0.1]}}"
        raise ConfigError(f"eval_args.split is {split!r} (from {origin})", cure)
    if kind != "RS" and eval_args["group_by"] != "user":
        raise ConfigError(
            f"eval_args.group_by {eval_args['group_by']!r} would do nothing for split {kind} (from {origin})",
            "write group_by: user; only RS can split all users' rows at once",
        )


def _check_metrics(values: Mapping[str, Any], origin: Mapping[str, str]) -> None:
    metrics, topk = _as_list(values["metrics"]), _as_list(values["topk"])
    by_lower = {name.lower(): name for name in SUPPORTED_METRICS}
    for name in metrics:
        if "," in name:
            raise ConfigError(f"metrics is {name!r} (from {origin['metrics']})", f"write [{name}]")
        if name.lower() not in by_lower:
            guess = nearest(name, SUPPORTED_METRICS)
            start = f"did you mean {guess}? " if guess else ""
            raise ConfigError(f"metric {name!r} is not supported", f"{start}supported: {', '.join(SUPPORTED_METRICS)}")
    lists = [name for name in metrics if by_lower[name.lower()] in LIST_METRICS]
    if lists and max(topk) > MAX_LIST_LENGTH:
        cure = f"use topk up to {MAX_LIST_LENGTH}, or leave {', '.join(lists)} out"
        raise ConfigError(
            f"{lists[0]} is taken from the {MAX_LIST_LENGTH} stored items, topk goes up to {max(topk)}", cure
        )
    possible = [f"{by_lower[name.lower()]}@{k}" for name in metrics for k in topk]
    if values["valid_metric"].lower() not in [metric.lower() for metric in possible]:
        cause = f"valid_metric {values['valid_metric']!r} is not among metrics x topk"
        if origin["valid_metric"] == "default":  # it is the other two that were set
            changed = [key for key in ("metrics", "topk") if origin[key] != "default"]
            given = " and ".join(f"{key} {values[key]!r} (from {origin[key]})" for key in changed)
            cause = f"without valid_metric, which is {values['valid_metric']}: {given}"
        raise ConfigError(cause, f"set valid_metric too, to one of {', '.join(possible)}; or extend metrics or topk")


def _check_loss(values: Mapping[str, Any], origin: Mapping[str, str], entry: ModelEntry, model_class: type) -> None:
    pairwise = is_pairwise(model_class, values)
    negatives = values["train_neg_sample_args"]
    draws = negatives is not None
    if entry.origin != "stock" and (pairwise or draws):
        what = f"a pairwise loss ({entry.name})" if pairwise else f"train_neg_sample_args = {negatives!r}"
        where = origin.get("loss_type" if pairwise else "train_neg_sample_args", "the class")
        cure = "use loss_type: CE and train_neg_sample_args: ~; for RecBole's pairwise models --model=recbole:X"
        raise ConfigError(f"{what} is not supported: no negatives are drawn here (from {where})", cure)
    if entry.origin == "stock" and draws and values.get("loss_type") == "CE" and not pairwise:
        raise ConfigError(
            "train_neg_sample_args is set, but the loss CE draws no negatives", "write train_neg_sample_args: ~"
        )
    if entry.origin == "stock" and pairwise and not draws:
        raise ConfigError(
            f"{entry.display_name} with a pairwise loss needs train_neg_sample_args",
            "leave it out for one uniform negative",
        )


def _check_sizes(values: Mapping[str, Any], entry: ModelEntry) -> None:
    width, heads = values.get("hidden_size"), values.get("n_heads")
    if isinstance(width, int) and isinstance(heads, int) and width % heads:
        raise ConfigError(
            f"hidden_size {width} is not a multiple of n_heads {heads}", "choose n_heads that divides hidden_size"
        )
    if entry.name == "PRISM" and values["n_layers"] < 2:
        raise ConfigError(
            "PRISM sits between two layers, n_layers is 1", "use n_layers of at least 2, or --model=SASRec"
        )
    if entry.name == "NARM" and len(values["dropout_probs"]) != 2:
        raise ConfigError(
            f"dropout_probs is {values['dropout_probs']!r}", "two numbers: [of the embeddings, of the concatenation]"
        )


def _check_official(values: Mapping[str, Any], origin: Mapping[str, str], defaults: Mapping[str, Any]) -> None:
    """STAR-Rec's `official` decides over four keys, which then cannot be set beside it."""
    if not values.get("official"):
        return
    for name in ("attn_mask_mode", "sim_norm", "ssm_stack", "ssm_dt_init"):
        if values[name] != defaults[name]:
            cause = f"{name} = {values[name]!r} would do nothing beside official: True (from {origin[name]})"
            raise ConfigError(cause, "leave one of them out")


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _kind(value: Any) -> str:
    return "nothing" if value is None else type(value).__name__


def _hint(value: Any, key: Key) -> str:
    if isinstance(value, str) and list in key.types and "," in value:
        return f"write [{value}]"
    if isinstance(value, str) and bool in key.types and value.lower() in ("yes", "no", "on", "off"):
        return f"write {value.lower() in ('yes', 'on')}"
    if isinstance(value, str) and (number := settings_files.number_in(value)) is not None and not key.problem(number):
        return f"write {number}, a number without quotes"
    if isinstance(value, list) and str in key.types:
        return f"write '{value}', in quotes"
    if isinstance(value, float) and int in key.types and value.is_integer():
        return f"write {int(value)}"
    return ""


def _example(name: str, default: Any) -> str:
    shown = yaml.safe_dump(default, default_flow_style=True, width=10**6).splitlines()[0]
    return "leave it out" if default is None else f"the default is {name}: {shown}"


def _unknown_key(name: str, where: str, entry: ModelEntry, keys: Mapping[str, Key]) -> ConfigError:
    if name in SCHEMA:
        return ConfigError(
            f"{name} is not a setting of {entry.display_name} (from {where})", "leave it out for this model"
        )
    return _unknown(name, name, tuple(keys), where)


def _unknown(shown: str, name: str, known: Sequence[str], where: str) -> ConfigError:
    guess: Optional[str] = nearest(name, known)
    few = f"known: {', '.join(known)}" if len(known) < 10 else ""
    return ConfigError(f"unknown key {shown} (from {where})", f"did you mean {guess}?" if guess else few)
