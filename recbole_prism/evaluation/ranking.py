"""Scores -> ranks, by counting: no sort, no second [rows, items] matrix, one memory bound.

Shapes: B rows of a chunk, V items including padding (index 0), P pairs (row, seen item).

Greater and equal scores are counted once over all items; the numbers with seen items removed follow by taking off the
distinct seen items that beat or tie the target. The comparison passes go over blocks of rows that stay in the cache,
into one reused float buffer (on a CPU ten times faster than summing a boolean matrix; sums of 0 and 1 are exact in
float32 up to 16.7 million items).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from recbole_prism.data.transfer import to_device
from recbole_prism.errors import EvaluationError, ModelError, NonFiniteError
from recbole_prism.evaluation.ranks import Ranks
from recbole_prism.schema import LIST_METRICS

BLOCK_ELEMENTS = {"cpu": 2**20, "cuda": 2**26}  # scores compared at once: what fits a CPU's cache; enough to fill a GPU
SCORE_COPIES = 2  # a model may hold its scores twice for a moment (adding an output bias does)


def rank_rows(
    model: nn.Module,
    loader: Iterable[Any],
    *,
    n_items: int,
    mask_history: bool,
    memory_gb: float,
    device: torch.device | str,
    n_top: int = 0,
    progress: Callable[[Iterable[Any]], Iterable[Any]] | None = None,
) -> Ranks:
    """Rank the target of every evaluation row among all items.

    Ranks with seen items removed and with nothing removed come from the same scores. The result does not depend on the
    loader's batch size nor on `memory_gb`, except where a matrix product rounds the same score differently for another
    number of rows.

    Args:
        model: Has `full_sort_predict(interaction) -> [B, V]`, finite for all items but padding. Put into evaluation
            mode for the call; the mode of each of its modules is restored.
        loader: Yields (interaction, (history_row [P], history_item [P]), positive_u, positive_i), the pairs naming each
            *distinct* item of the rows' whole histories once; `interaction["row_id"]` indexes `loader.dataset.rows`.
        n_items: V, padding included.
        mask_history: Whether `top_items` leaves seen items out. Both kinds of counts are always taken.
        memory_gb: Bound (10^9 bytes) on the scores held at one time; a batch that would need more is scored in parts.
            What the model itself needs to encode a batch comes on top.
        device: Where the model is.
        n_top: Length of the lists kept per row; 0 keeps none.
        progress: Wraps the loader, e.g. in a progress bar.

    Raises:
        NonFiniteError: If a score of an item is NaN or infinite.
        ModelError: If the scores do not have the shape [B, V].
        EvaluationError: If the loader does not tell the histories.
    """
    rows = loader.dataset.rows  # type: ignore[attr-defined]
    max_rows = rows_within(memory_gb, n_items, model)
    parts: list[dict[str, np.ndarray]] = []
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.inference_mode():
            for number, batch in enumerate(progress(loader) if progress else loader):
                for interaction, history in _chunks(batch, max_rows):
                    row_id = interaction["row_id"].cpu()
                    scores = _scores(model, to_device(interaction, torch.device(device)), n_items)
                    refuse_non_finite(scores, f"batch {number}", row_id)
                    target = torch.from_numpy(rows.target[row_id.numpy()]).long()
                    counted = rank_scores(scores, target, history, mask_history=mask_history, n_top=n_top)
                    del scores  # before the next chunk's are made
                    counted["row_id"] = row_id
                    parts.append({name: value.cpu().numpy() for name, value in counted.items()})
    finally:
        for module, training in modes:
            module.training = training
    return _assemble(parts, rows, mask_history, n_top)


def needs_top_items(metrics: Sequence[str], topk: Sequence[int]) -> int:
    """The `n_top` that these metrics need: the largest cut-off if one of them looks at the lists, else 0."""
    of_lists = {name.lower() for name in LIST_METRICS}
    return max(topk) if any(name.lower() in of_lists for name in metrics) else 0


def rows_within(memory_gb: float, n_items: int, model: nn.Module) -> int:
    """Number of rows, at least one, whose scores take at most `memory_gb` * 10^9 bytes, comparison buffers included."""
    parameter = next(model.parameters(), None)
    element = 4 if parameter is None else max(4, parameter.element_size())
    buffers = 4 * element * BLOCK_ELEMENTS["cuda" if parameter is not None and parameter.is_cuda else "cpu"]
    return max(1, int((memory_gb * 1e9 - buffers) // (SCORE_COPIES * element * n_items)))


def _chunks(batch: Any, max_rows: int) -> Iterator[tuple[Any, tuple[Tensor, Tensor]]]:
    """Cut one loader batch into (interaction, (history_row, history_item)) of at most `max_rows` rows each."""
    interaction, history = batch[0], batch[1]
    if history is None or "row_id" not in interaction.interaction:
        raise EvaluationError(
            "the evaluation loader does not tell the rows' histories",
            "use recbole_prism.data.loader.FullSortEvalDataLoader, also for stock RecBole models",
        )
    row, item = history
    n_rows = len(interaction)
    if n_rows <= max_rows:
        yield interaction, (row, item)
        return
    for start in range(0, n_rows, max_rows):
        stop = min(start + max_rows, n_rows)
        inside = (row >= start) & (row < stop)
        yield interaction[start:stop], (row[inside] - start, item[inside])


def rank_scores(
    scores: Tensor, target: Tensor, history: tuple[Tensor, Tensor], *, mask_history: bool, n_top: int
) -> dict[str, Tensor]:
    """Rank the target of each row among the real items.

    Args:
        scores: [B, V], finite; column 0 (padding) is ignored.
        target: Item of each row, int64 [B].
        history: Pairs (row [P], item [P]), int64, each distinct seen item of a row once.
        mask_history: Whether `top_items` leaves seen items out.
        n_top: Length of `top_items`.

    Returns:
        The counts, `target_in_history` and `top_items` of `Ranks`, on the device of the scores.
    """
    target = target.to(scores.device)
    row, item = (index.to(scores.device) for index in history)
    target_score = scores.gather(1, target.unsqueeze(1))  # [B, 1], from the same matrix: bit for bit comparable
    greater, equal = _count(scores, target_score)
    seen_score, aim = scores[row, item], target_score.squeeze(1)[row]

    def per_row(flag: Tensor) -> Tensor:
        return torch.zeros_like(greater).index_add_(0, row, flag.to(greater.dtype))

    is_seen = per_row(item == target[row]) > 0
    miss = torch.full_like(greater, scores.shape[1] - 1)
    return {
        "n_greater": torch.where(is_seen, miss, greater - per_row(seen_score > aim)),
        "n_equal": torch.where(is_seen, torch.zeros_like(equal), equal - per_row(seen_score == aim)),
        "n_greater_all": greater,
        "n_equal_all": equal,
        "target_in_history": is_seen,
        "top_items": _top_items(scores, (row, item) if mask_history else None, n_top),
    }


def refuse_non_finite(scores: Tensor, where: str, row_id: Tensor) -> None:
    """Raise if a real item's score is NaN or infinite.

    A NaN is neither greater nor equal, so that the target would rank first.

    Args:
        scores: [B, V]; column 0 is ignored.
        where: Place to name in the message.
        row_id: Identity of each row in the message, [B].

    Raises:
        NonFiniteError: Naming the place and the first rows.
    """
    dtype = torch.promote_types(scores.dtype, torch.float32)
    total = scores[:, 1:].sum(1, dtype=dtype)  # one pass: NaN and infinity survive a sum
    suspects = torch.nonzero(~torch.isfinite(total)).squeeze(1).tolist()
    bad = [row for row in suspects if not bool(torch.isfinite(scores[row, 1:]).all())]  # a finite sum may overflow
    if bad:
        names = ", ".join(str(int(row_id[row])) for row in bad[:5]) + (", ..." if len(bad) > 5 else "")
        raise NonFiniteError(
            f"NaN or infinite scores in {len(bad)} of {len(total)} rows of evaluation {where} (row ids {names})",
            "the model has diverged: lower learning_rate or the weight of the auxiliary losses. A model of your own "
            "must not mark items with infinity",
        )


def _scores(model: Any, interaction: Any, n_items: int) -> Tensor:
    """The model's scores as [B, V]; RecBole allows a flat tensor too.

    Raises:
        ModelError: If they are no floating tensor of one of these shapes.
    """
    n_rows = len(interaction)
    scores = model.full_sort_predict(interaction)
    if not (isinstance(scores, Tensor) and scores.is_floating_point()):
        what = f"a tensor of {scores.dtype}" if isinstance(scores, Tensor) else f"a {type(scores).__name__}"
        raise ModelError(f"{type(model).__name__}.full_sort_predict gave {what}", "it must return a float tensor")
    if scores.shape not in ((n_rows, n_items), (n_rows * n_items,)):
        raise ModelError(
            f"{type(model).__name__}.full_sort_predict gave scores of shape {tuple(scores.shape)} "
            f"for {n_rows} rows and {n_items} items",
            "it must return one score per row and item, padding included: [B, n_items]",
        )
    return scores.reshape(n_rows, n_items)


def _blocks(scores: Tensor) -> Iterator[slice]:
    """Slices of rows that together hold about BLOCK_ELEMENTS scores."""
    rows = max(1, BLOCK_ELEMENTS["cpu" if scores.device.type == "cpu" else "cuda"] // scores.shape[1])
    for start in range(0, len(scores), rows):
        yield slice(start, min(start + rows, len(scores)))


def _count(scores: Tensor, target_score: Tensor) -> tuple[Tensor, Tensor]:
    """Count the real items above and level with the target, the target itself left out.

    Args:
        scores: [B, V]; column 0 is ignored.
        target_score: [B, 1].

    Returns:
        (greater, equal), int64 [B] each.
    """
    greater = torch.empty(len(scores), dtype=torch.float32, device=scores.device)
    at_least = torch.empty_like(greater)
    flags: Tensor | None = None
    for block in _blocks(scores):
        real, aim = scores[block, 1:], target_score[block]
        if flags is None:
            flags = torch.empty(real.shape, dtype=torch.float32, device=scores.device)
        flag = flags[: len(real)]
        greater[block] = torch.gt(real, aim, out=flag).sum(1)
        at_least[block] = torch.ge(real, aim, out=flag).sum(1)
    return greater.long(), (at_least - greater).long() - 1


def _top_items(scores: Tensor, seen: tuple[Tensor, Tensor] | None, n_top: int) -> Tensor:
    """The best `n_top` real items of each row, int32 [B, n_top].

    Equal scores stand in the order of their index; 0 where no item is left.

    Args:
        scores: [B, V], left as it is (a model may have handed out a tensor it still needs).
        seen: Pairs (row [P], item [P]) that must not be in the lists; None leaves everything in.
        n_top: Length of the lists.
    """
    top = torch.zeros(len(scores), n_top, dtype=torch.int32, device=scores.device)
    n_found = min(n_top, scores.shape[1] - 1)
    if n_found == 0:
        return top
    for block in _blocks(scores):
        candidates = scores[block].clone()
        candidates[:, 0] = -torch.inf
        if seen is not None:
            inside = (seen[0] >= block.start) & (seen[0] < block.stop)
            candidates[seen[0][inside] - block.start, seen[1][inside]] = -torch.inf
        top[block, :n_found] = _sorted_top(candidates, n_found).to(torch.int32)
    return top


def _sorted_top(candidates: Tensor, n_found: int) -> Tensor:
    """Top `n_found` columns of [b, V], by score, then by index; 0 for columns at minus infinity. int64 [b, n_found]."""
    value, index = candidates.topk(n_found + 1, dim=1)  # V >= n_found + 1: column 0 is one of them
    tied = (value[:, -2] == value[:, -1]) & (value[:, -1] > -torch.inf)  # which of them `topk` took is left to chance
    index = index[:, :n_found].sort(dim=1).values
    value, order = candidates.gather(1, index).sort(dim=1, descending=True, stable=True)
    index = index.gather(1, order)
    for row in torch.nonzero(tied).squeeze(1).tolist():
        level = torch.nonzero(candidates[row] >= value[row, -1]).squeeze(1)
        index[row] = level[candidates[row, level].sort(descending=True, stable=True).indices[:n_found]]
    return index.masked_fill(value == -torch.inf, 0)


def _assemble(parts: list[dict[str, np.ndarray]], rows: Any, mask_history: bool, n_top: int) -> Ranks:
    """Chunks in loader order -> Ranks in the order of the row ids."""
    counts = ("n_greater", "n_equal", "n_greater_all", "n_equal_all")
    nothing = {name: np.zeros(0) for name in ("row_id", "target_in_history", *counts)}
    parts = parts or [{**nothing, "top_items": np.zeros((0, n_top))}]
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    row_id = joined["row_id"].astype(np.int64)
    order = np.argsort(row_id, kind="stable")
    row_id = row_id[order]
    return Ranks(
        user=rows.user[row_id].astype(np.int32),
        target=rows.target[row_id].astype(np.int32),
        position=(rows.end - rows.history_start)[row_id].astype(np.int32),
        history_length=(rows.end - rows.start)[row_id].astype(np.int32),
        **{name: joined[name][order].astype(np.int32) for name in counts},
        target_in_history=joined["target_in_history"][order].astype(bool),
        top_items=joined["top_items"][order].astype(np.int32),
        mask_history=mask_history,
    )
