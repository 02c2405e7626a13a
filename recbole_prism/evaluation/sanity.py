"""A warning for a trained model that does no better than counting."""

from __future__ import annotations

import logging
from collections.abc import Mapping

BASELINES = ("Popularity", "Markov")  # models that are fitted by counting
_logger = logging.getLogger("recbole_prism")


def check_baselines(model: str, metric: str, score: float, baselines: Mapping[str, float], bigger: bool) -> list[str]:
    """Warn if a baseline is at least as good as the model.

    Args:
        model: Its name.
        metric: What was measured, on the validation rows.
        score: The model's.
        baselines: Name -> score.
        bigger: Whether bigger is better.

    Returns:
        Names of the baselines that are at least as good.
    """
    better = [name for name, other in baselines.items() if (other >= score if bigger else other <= score)]
    if better:
        shown = ", ".join(f"{name} {baselines[name]:.4f}" for name in better)
        _logger.warning(
            "%s is not better than counting: validation %s %.4f against %s. It was trained too little or with "
            "unfit settings (learning_rate, dropout), or the data hold no more than that.",
            *(model, metric, score, shown),
        )
    return better
