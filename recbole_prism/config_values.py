"""Checks of single values that a type and a range do not describe, and of RecBole's keys that would do nothing."""

from __future__ import annotations

import math
import re
from typing import Any, Mapping

from recbole_prism.errors import ConfigError
from recbole_prism.registry import ModelEntry, nearest
from recbole_prism.schema import MOST, Key

INTERVAL_FORM = '"[A,B]", "[A,B)", "(A,B]" or "(A,B)", e.g. "[5,inf)"; several with ; between'

_INTERVALS = tuple(f"{counted}_num_interval" for counted in ("user_inter", "item_inter", "entity_kg", "relation_kg"))
_CLIP_FORM = "write clip_grad_norm: {max_norm: 5}, or ~"
_CLIP: Mapping[str, Key] = {  # the arguments of torch.nn.utils.clip_grad_norm_
    "max_norm": Key((float,), low=0, open_low=True, high=math.inf, open_high=True),
    "norm_type": Key((float,), low=0, open_low=True),
    "error_if_nonfinite": Key((bool,)),
    "foreach": Key((bool,), optional=True),
}

_NOWHERE = "nothing reads it; leave it out"
_NO_FEATURES = "models here see users, items and order only; RecBole's own data path is --model=recbole:X"
_NO_GRAPH = "models here use no knowledge graph; RecBole's own data path is --model=recbole:X"
# RecBole's keys that no sequential model reads, then those that RecBole's own data path reads, but ours does not.
# `unused_col` is none of them: columns that are loaded serve the filters only, which is what it asks for.
_WITHOUT_EFFECT: Mapping[str, str] = dict.fromkeys(("RATING_FIELD", "POSITION_FIELD", "require_pow"), _NOWHERE)
_WITHOUT_EFFECT_ON_PARTS: Mapping[str, str] = dict.fromkeys(
    ("rm_dup_inter", "val_interval", "user_inter_num_interval", "item_inter_num_interval"),
    "files that are split already (benchmark_filename) are taken as they are; filter them beforehand",
)
_WITHOUT_EFFECT_HERE: Mapping[str, str] = {
    **dict.fromkeys(("NEG_PREFIX", "LABEL_FIELD", "threshold"), "no negatives are drawn and no labels made here"),
    **dict.fromkeys(("normalize_all", "normalize_field", "numerical_features", "discretization"), _NO_FEATURES),
    **dict.fromkeys(("preload_weight", "additional_feat_suffix"), _NO_FEATURES),
    "seq_len": "it would keep the oldest; MAX_ITEM_LIST_LENGTH keeps the most recent items",
    **dict.fromkeys(("HEAD_ENTITY_ID_FIELD", "TAIL_ENTITY_ID_FIELD", "RELATION_ID_FIELD"), _NO_GRAPH),
    **dict.fromkeys(("ENTITY_ID_FIELD", "alias_of_entity_id", "alias_of_relation_id", "kg_reverse_r"), _NO_GRAPH),
    **dict.fromkeys(("entity_kg_num_interval", "relation_kg_num_interval"), _NO_GRAPH),
}


def check_values(values: Mapping[str, Any], origin: Mapping[str, str]) -> None:
    """Check intervals, encoding and gradient clipping.

    Raises:
        ConfigError: On the first wrong one.
    """
    for name in _INTERVALS:
        if values.get(name) is not None and not is_interval(values[name]):
            raise ConfigError(f"{name} is {values[name]!r} (from {origin[name]})", f"write {INTERVAL_FORM}")
    if values.get("encoding") is not None:
        try:
            "".encode(values["encoding"])
        except (LookupError, ValueError) as error:
            cause = f"encoding is {values['encoding']!r}, no text encoding of Python's (from {origin['encoding']})"
            raise ConfigError(cause, "write encoding: utf-8, or another name of Python's") from error
    if values["clip_grad_norm"] is not None:
        _check_clip(values["clip_grad_norm"], origin["clip_grad_norm"])


def check_effect(
    values: Mapping[str, Any], origin: Mapping[str, str], entry: ModelEntry, defaults: Mapping[str, Any]
) -> None:
    """Refuse a changed setting that would do nothing for this model.

    Args:
        values: The merged settings.
        origin: Where each came from.
        entry: What the registry knows of the model.
        defaults: The settings before the caller's.

    Raises:
        ConfigError: Naming the setting.
    """
    keys = dict(_WITHOUT_EFFECT)
    if entry.origin != "stock":
        keys.update(_WITHOUT_EFFECT_HERE)
    if values["benchmark_filename"]:
        keys.update(_WITHOUT_EFFECT_ON_PARTS)
    for name, cure in keys.items():
        if (values.get(name) or None) != (defaults.get(name) or None):  # ~, False and [] all mean "no"
            cause = f"{name} = {values[name]!r} would do nothing for {entry.display_name} (from {origin[name]})"
            raise ConfigError(cause, cure)


def check_compile(values: Mapping[str, Any], origin: Mapping[str, str], entry: ModelEntry) -> None:
    """Refuse to compile what has other shapes in every batch.

    Raises:
        ConfigError: `compile` together with packed batches.
    """
    if values["compile"] and values["fast_path"] and entry.origin == "own":
        raise ConfigError(
            f"compile: True (from {origin['compile']}) does not go with fast_path: True, whose packed batches have "
            "other shapes every time",
            "add fast_path: False, if that is faster for this data and device; or leave compile out",
        )


def is_interval(text: str) -> bool:
    """Whether RecBole can read a text as intervals: "[5,inf)", "(0,1];[3,4)"."""
    for interval in text.split(";"):
        ends = re.fullmatch(r"\s*[\[(]([^,]+),([^,]+)[\])]\s*", interval)
        if ends is None:
            return False
        try:
            low, high = (float(end) for end in ends.groups())
        except ValueError:
            return False
        if not low <= high:  # also for NaN
            return False
    return True


def are_shares(value: Any) -> bool:
    """Whether a value can split rows: three numbers, none negative or huge, the first (training) above 0."""
    number = Key((float,), low=0, high=MOST)
    return (
        isinstance(value, list)
        and len(value) == 3
        and all(number.problem(share) is None for share in value)
        and value[0] > 0
    )


def _check_clip(clip: Mapping[str, Any], origin: str) -> None:
    for name, value in clip.items():
        if name not in _CLIP:
            guess = nearest(str(name), _CLIP)
            cure = f"did you mean {guess}?" if guess else f"known: {', '.join(_CLIP)}"
            raise ConfigError(f"unknown key clip_grad_norm.{name} (from {origin})", cure)
        expected = _CLIP[name].problem(value)
        if expected is not None:
            raise ConfigError(f"clip_grad_norm.{name} is {value!r}, expected {expected} (from {origin})", _CLIP_FORM)
    if "max_norm" not in clip:
        raise ConfigError(f"clip_grad_norm is {clip!r} (from {origin})", _CLIP_FORM)
