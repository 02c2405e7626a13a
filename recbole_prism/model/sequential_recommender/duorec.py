"""DuoRec: SASRec with a contrast of two encodings of a history and of another history with the same target.

Qiu et al., "Contrastive Learning for Representation Degeneration Problem in Sequential Recommendation", WSDM 2022,
arXiv 2110.05730.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Mapping, NamedTuple

from recbole.data.interaction import Interaction

from recbole_prism.model.functional.info_nce import info_nce
from recbole_prism.model.functional.loss_parts import LossParts
from recbole_prism.model.sequential_recommender.transformer import TransformerRecommender, branch_of


class Term(NamedTuple):
    """One contrast of a mode.

    Attributes:
        first, second: Encodings that belong together: "row" predicts, "again" is a second pass of the same history
            (only dropout differs), "partner" a training history with the same target.
        weight_key: Setting that weights it.
        name: Its name among the loss parts.
    """

    first: str
    second: str
    weight_key: str
    name: str


_DROPOUT_PAIR = Term("row", "again", "dropout_cl_weight", "dropout_cl")
_SEMANTIC_PAIR = Term("row", "partner", "cl_weight", "cl")
CONTRASTS: Mapping[str, tuple[Term, ...]] = {
    "us_x": (_SEMANTIC_PAIR._replace(first="again"),),
    "un": (_DROPOUT_PAIR,),
    "su": (_SEMANTIC_PAIR,),
    "us": (_DROPOUT_PAIR, _SEMANTIC_PAIR),
    "none": (),
}


class DuoRec(TransformerRecommender):
    """L = L_rec + cl_weight * InfoNCE(z_u, z_s) in the published mode `us_x`; the other modes are ablations.

    The loader draws the same-target partner from the training rows, anew each epoch; a row without one is its own
    partner, and the pair then differs by dropout alone. All encodings come from one pass with dropout of their own, and
    gradients flow through each. No parameter is added and nothing changes at inference.

    Follows the authors' code. The paper writes the two directions of the contrast as two terms, the code averages them,
    so a weight lambda of the paper may correspond to 2 lambda here.

    Args:
        config: RecBole config with the keys of properties/model/DuoRec.yaml.
        dataset: Anything with RecBole's `num(field)`.
    """

    def __init__(self, config: Any, dataset: Any) -> None:
        super().__init__(config, dataset)
        self.terms = [(term, float(config[term.weight_key])) for term in self.active_terms(config)]
        self.info_nce = partial(
            info_nce, temperature=float(config["cl_temperature"]), similarity=config["cl_similarity"]
        )
        self.cl_filter_same = bool(config["cl_filter_same"])

    @staticmethod
    def active_terms(config: Any) -> list[Term]:
        """The contrasts of the mode whose weight is not 0."""
        return [term for term in CONTRASTS[config["contrast"]] if float(config[term.weight_key]) > 0]

    @classmethod
    def needs(cls, config: Any) -> frozenset[str]:
        """Extra rows the loader must put into a training batch."""
        wanted = any(term.second == "partner" for term in cls.active_terms(config))
        return frozenset({"partner"}) if wanted else frozenset()

    def calculate_loss(self, interaction: Interaction) -> LossParts:
        """Recommendation loss, and the weighted contrasts of the mode ("cl", "dropout_cl")."""
        used = {name for term, _ in self.terms for name in (term.first, term.second)}
        names = ["row"] + [name for name in ("again", "partner") if name in used]
        branches = [
            branch_of(interaction, self.ITEM_SEQ, self.ITEM_SEQ_LEN, "partner" if name == "partner" else None)
            for name in names
        ]
        encoded = dict(zip(names, self.encode(branches)))
        targets = interaction[self.POS_ITEM_ID]
        parts = {"rec": self.recommendation_loss(encoded["row"], targets)}
        labels = targets if self.cl_filter_same else None
        for term, weight in self.terms:
            parts[term.name] = weight * self.info_nce(encoded[term.first], encoded[term.second], labels=labels)
        return LossParts(parts)
