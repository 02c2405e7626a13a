"""SASRec: RecBole's class with this package's encoder.

Kang and McAuley, "Self-Attentive Sequential Recommendation", ICDM 2018.
"""

from __future__ import annotations

from recbole_prism.model.sequential_recommender.transformer import TransformerRecommender


class SASRec(TransformerRecommender):
    """The base encoder trained with full-softmax cross-entropy on prefix rows; equal to RecBole's SASRec."""
