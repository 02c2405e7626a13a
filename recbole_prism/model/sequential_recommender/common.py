"""Checks that all models of this package make of their settings."""

from __future__ import annotations

from typing import Any

from recbole_prism.errors import ConfigError


def check_loss_type(config: Any, model: str, stock: str) -> None:
    """Refuse a loss other than full-softmax cross-entropy.

    Args:
        config: RecBole config.
        model: Name of the model, for the message.
        stock: RecBole's class that offers other losses.

    Raises:
        ConfigError: `loss_type` is not CE.
    """
    if config["loss_type"] != "CE":
        raise ConfigError(
            f"loss_type {config['loss_type']!r} is not available for {model}",
            f"use loss_type: CE, or the stock class: --model=recbole:{stock}",
        )


def fast_path_of(config: Any, model: str) -> bool:
    """The key `fast_path`, checked against what the model declares.

    Raises:
        ConfigError: It is on, and the model does not declare `padding_free`.
    """
    fast_path = bool(config["fast_path"])
    declared = getattr(config, "properties", None)
    if fast_path and declared is not None and not declared.padding_free:
        raise ConfigError(
            f"the fast path leaves padding out, and {model} does not declare `padding_free`",
            "return ModelProperties(padding_free=True, ...) from its `declared_properties(config)`, or set "
            "fast_path: False",
        )
    return fast_path
