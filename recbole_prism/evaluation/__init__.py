"""Scores -> ranks -> metrics."""

from __future__ import annotations

from recbole_prism.evaluation.diversity import check_diversity
from recbole_prism.evaluation.metrics import compute_metrics
from recbole_prism.evaluation.ranking import rank_rows
from recbole_prism.evaluation.ranks import Ranks

__all__ = ["Ranks", "check_diversity", "compute_metrics", "rank_rows"]
