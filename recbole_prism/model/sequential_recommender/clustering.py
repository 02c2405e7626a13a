"""The E-step of ICLRec and ICSRec: k-means over representations of the training rows at the start of epochs."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from recbole_prism.errors import ModelError
from recbole_prism.model.layers.intents import IntentCentres
from recbole_prism.model.sequential_recommender.intents import IntentRecommender


class ClusteringRecommender(IntentRecommender):
    """An intent model whose centres come from k-means at the start of epochs (the E-step).

    Its weights of the clustered part stand in `centre_weight`; at 0 there is no E-step.
    """

    centre_weight: float

    def __init__(self, config: Any, dataset: Any) -> None:
        super().__init__(config, dataset)
        self.estep_every = int(config["estep_every"])
        self.estep_warmup = int(config["estep_warmup"])
        self.estep_rows: str = config["estep_rows"]
        self.warm_start = bool(config["kmeans_warm_start"])
        self.centres = IntentCentres()
        self.warming_up = False

    def estep_pooling(self) -> str:
        """Pooling of the representations that are clustered."""
        raise NotImplementedError

    def on_train_epoch_start(self, train_rows: Any, epoch: int) -> None:
        """Cluster the training rows where it is due; before `estep_warmup` epochs there are no intents at all.

        Args:
            train_rows: The training part, see `represent_rows`.
            epoch: From 0.
        """
        self.warming_up = epoch < self.estep_warmup
        if self.centre_weight == 0 or self.warming_up:
            return
        if self.centres.known and (epoch - self.estep_warmup) % self.estep_every:
            return
        init = self.centres.raw if self.centres.known and self.warm_start else None
        self.centres.raw = self.cluster_rows(train_rows, epoch, self.estep_rows, self.estep_pooling(), init)

    def uses_centres(self) -> bool:
        """Whether this epoch's loss has a part with centres.

        Raises:
            ModelError: It should have, but nobody has called `on_train_epoch_start`.
        """
        if self.centre_weight == 0 or self.warming_up:
            return False
        if not self.centres.known:
            raise ModelError(
                f"{type(self).__name__} has no intent centres yet",
                "use this package's trainer, or call on_train_epoch_start(train_rows, epoch) before each epoch",
            )
        return True

    def contrast_with_centres(self, views: Tensor, intents: Tensor) -> Tensor:
        """InfoNCE of views with the directions of their intents: [B, d], [B] -> scalar."""
        self.usage.add(intents, self.centres.raw.shape[0])
        labels = intents if self.cl_filter_same else None
        return self.info_nce(views, self.centres.directions(intents), labels=labels)

    def resume_state(self) -> dict[str, Tensor]:
        """The centres, from which the next E-step goes on."""
        return {"centres": self.centres.raw.cpu()} if self.centres.known else {}

    def load_resume_state(self, tensors: dict[str, Tensor]) -> None:
        """Put back what `resume_state` gave."""
        self.centres.raw = tensors["centres"].to(self.item_embedding.weight.device)
