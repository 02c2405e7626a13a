"""A few users on a cycle of items, as the trainer sees them, and models small enough to know by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Iterator, Sequence

import numpy as np
import torch
from recbole.data.interaction import Interaction
from torch import Tensor, nn
from torch.nn import functional as F

from recbole_prism.model.functional.loss_parts import LossParts

N_ITEMS = 13  # 12 real ones and padding
N_USERS = 10
N_EVENTS = 7  # per user


class Split:
    """Rows of one split: user u has the items u, u+1, ... of the cycle."""

    def __init__(self, ends: Sequence[int]) -> None:
        users = np.repeat(np.arange(N_USERS), len(ends))
        first = users * N_EVENTS
        end = first + np.tile(np.asarray(ends, dtype=np.int64), N_USERS)
        self.items = np.concatenate([(np.arange(N_EVENTS) + user) % (N_ITEMS - 1) + 1 for user in range(N_USERS)])
        self.rows = SimpleNamespace(user=users + 1, history_start=first, start=first, end=end, target=self.items[end])
        self.item_num = N_ITEMS
        self.item_counts_train = np.bincount(self.items, minlength=N_ITEMS)

    def __len__(self) -> int:
        return len(self.rows.user)

    def interaction(self, rows: np.ndarray) -> Interaction:
        chosen = {name: getattr(self.rows, name)[rows] for name in ("user", "end", "target")}
        return Interaction(
            {
                "user_id": torch.from_numpy(chosen["user"]),
                "item_id": torch.from_numpy(chosen["target"]),
                "last_item": torch.from_numpy(self.items[chosen["end"] - 1]),
                "row_id": torch.from_numpy(rows),
            }
        )


class TrainLoader:
    def __init__(self, batch_size: int = 8) -> None:
        self.dataset, self.batch_size, self.epoch = Split(range(1, N_EVENTS - 2)), batch_size, 0

    def __len__(self) -> int:
        return -(-len(self.dataset) // self.batch_size)

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[Interaction]:
        order = np.random.RandomState(self.epoch).permutation(len(self.dataset))
        for start in range(0, len(order), self.batch_size):
            yield self.dataset.interaction(order[start : start + self.batch_size])


class EvalLoader:
    def __init__(self, end: int = N_EVENTS - 2, empty: bool = False) -> None:
        self.dataset = Split([] if empty else [end])

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[Any]:
        rows = np.arange(len(self.dataset))
        no_history = torch.zeros(0, dtype=torch.int64)
        interaction = self.dataset.interaction(rows)
        yield interaction, (no_history, no_history), torch.from_numpy(rows), interaction["item_id"]


class Bigram(nn.Module):
    """Next item from the last one, with dropout, so that random states matter."""

    ITEM_ID = "item_id"

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.table = nn.Embedding(N_ITEMS, 6)
        self.head = nn.Linear(6, N_ITEMS)
        self.dropout = nn.Dropout(0.2)
        self.kept = torch.zeros(2)
        self.epochs_seen: list[tuple[Any, int]] = []

    def scores(self, interaction: Interaction) -> Tensor:
        return self.head(self.dropout(self.table(interaction["last_item"])))

    def calculate_loss(self, interaction: Interaction) -> Any:
        rec = F.cross_entropy(self.scores(interaction), interaction["item_id"])
        self.kept[1] += 1.0
        return LossParts({"rec": rec, "pull": 0.001 * self.kept[0] * self.head.weight.square().sum()})

    def full_sort_predict(self, interaction: Interaction) -> Tensor:
        return self.scores(interaction)

    def on_train_epoch_start(self, train_rows: Any, epoch: int) -> None:
        self.epochs_seen.append((train_rows, epoch))
        self.kept[0] += torch.rand(())  # a made-up E-step that draws random numbers and lasts

    def epoch_scalars(self) -> dict[str, float]:
        return {"pull_weight": float(self.kept[0])}

    def resume_state(self) -> dict[str, Tensor]:
        return {"kept": self.kept.clone()}

    def load_resume_state(self, tensors: dict[str, Tensor]) -> None:
        self.kept = tensors["kept"].clone()


class Scripted(nn.Module):
    """Ranks the targets of a given number of rows first and all others last, by epoch."""

    ITEM_ID = "item_id"

    def __init__(self, n_right: Sequence[int]) -> None:
        super().__init__()
        self.script = n_right
        self.register_buffer("n_right", torch.tensor(0))
        self.weight = nn.Parameter(torch.zeros(1))

    def on_train_epoch_start(self, train_rows: Any, epoch: int) -> None:
        self.n_right = torch.tensor(self.script[epoch])

    def calculate_loss(self, interaction: Interaction) -> Tensor:
        return self.weight.square().sum()

    def full_sort_predict(self, interaction: Interaction) -> Tensor:
        right = interaction["row_id"] < self.n_right
        return F.one_hot(interaction["item_id"], N_ITEMS) * torch.where(right, 1.0, -1.0).unsqueeze(1)


def settings(**changes: Any) -> dict[str, Any]:
    return {
        "device": "cpu",
        "learner": "adam",
        "learning_rate": 0.05,
        "weight_decay": 0.0,
        "clip_grad_norm": None,
        "compile": False,
        "epochs": 4,
        "eval_step": 1,
        "stopping_step": 10,
        "valid_metric": "Hit@1",
        "valid_metric_bigger": True,
        "metrics": ["Hit", "NDCG"],
        "topk": [1, 5],
        "mask_history": True,
        "eval_memory_gb": 1.0,
        "metric_decimal_place": 4,
        "loss_decimal_place": 4,
        "tail_ratio": 0.1,
        **changes,
    }
