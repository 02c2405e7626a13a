"""Where a PRISM step's time goes: each part alone, forward and backward, on one batch, in CPU milliseconds."""

from __future__ import annotations

import statistics
import time
from typing import Any, Callable, Iterator, Sequence, Union

import common
import torch
from torch import Tensor

from recbole_prism.model.layers.packed import pack, restack, take_distinct_rows
from recbole_prism.model.layers.prism import mix
from recbole_prism.model.layers.router import primary_anchor
from recbole_prism.model.sequential_recommender.transformer import branch_of

REPETITIONS = 7
Nested = Union[Tensor, Sequence[Any]]


def median_ms(call: Callable[[], Any]) -> float:
    seconds = []
    for number in range(REPETITIONS + 2):
        before = time.process_time()
        call()
        if number >= 2:
            seconds.append(time.process_time() - before)
    return statistics.median(seconds) * 1e3


def tensors(nested: Nested) -> Iterator[Tensor]:
    """The differentiable tensors of a result."""
    if isinstance(nested, Tensor):
        if nested.requires_grad:
            yield nested
        return
    for part in nested:
        yield from tensors(part)


class Profile:
    """Measures one part after the other and remembers the lines of the table."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, float, float]] = []

    def part(self, name: str, function: Callable[..., Nested], *inputs: Tensor) -> Any:
        """Time `function(*inputs)` and its backward pass; returns its result, detached from nothing."""
        leaves = [tensor.detach().clone().requires_grad_() for tensor in inputs]
        with torch.no_grad():
            forward = median_ms(lambda: function(*leaves))
        grads = [torch.randn_like(tensor) for tensor in tensors(function(*leaves))]
        both = median_ms(lambda: torch.autograd.backward(list(tensors(function(*leaves))), grads))
        self.rows.append((name, forward, both))
        return function(*leaves)

    def plain(self, name: str, call: Callable[[], Any]) -> None:
        milliseconds = median_ms(call)
        self.rows.append((name, milliseconds, milliseconds))


def measure(contender: common.Contender) -> list[tuple[str, float, float]]:
    """All parts of a step, in the order of the computation."""
    model: Any = contender.model
    batches = common.endless(contender.loaders[0])
    data, profile = next(batches), Profile()
    targets, n_rows = data["item_id"], len(data)
    branches = [branch_of(data, model.ITEM_SEQ, model.ITEM_SEQ_LEN, prefix) for prefix in (None, "partner")]
    profile.plain("load a batch", lambda: next(batches))
    profile.plain("pack", lambda: pack(branches))
    batch = pack(branches)
    profile.plain("restack", lambda: restack(batch, n_rows))
    layer, module = model._stages()[0]
    embedded = profile.part("embedding", lambda: model.embed(batch.items, batch.positions))
    attended, logits, values = profile.part(
        "first layer: attention", lambda x: layer.multi_head_attention.packed(x, batch), embedded
    )
    hidden = profile.part("first layer: feed-forward", layer.feed_forward, attended)
    routing = profile.part("router", module.router, hidden)
    n_groups, anchors = len(logits), primary_anchor(routing)
    outputs = profile.part(
        "lenses",
        lambda x, *blocks: module.packed_lens_outputs(x, blocks[:n_groups], blocks[n_groups:], anchors, batch),
        *(hidden, *logits, *values),
    )
    on_path = batch.tokens_of(0, n_rows)
    ratio = torch.softmax(routing, dim=-1).detach()
    profile.part(
        "consistency loss",
        lambda z, g: model._consistency(model_view(z, g), batch.lengths[batch.sequences[on_path]], targets, n_rows),
        *(outputs[on_path], ratio[on_path]),
    )
    stacked, _, place = restack(batch, n_rows)

    def synthesise(z: Tensor, g: Tensor) -> Tensor:
        return take_distinct_rows(torch.cat([mix(z, g), mix(z[on_path], g[on_path])]), place)

    mixed = profile.part("synthesis of both paths", synthesise, outputs, ratio)
    above = profile.part("module's feed-forward", module.feed_forward, mixed)
    last = profile.part("last layer", lambda x: model.trm_encoder.layers[-1].packed_last(x, stacked), above)
    first, second = last[:n_rows], last[n_rows : 2 * n_rows]
    profile.part("cross-entropy over all items", lambda x: model.recommendation_loss(x, targets), first)
    profile.part("contrastive loss", lambda x, y: model.info_nce(x, y, labels=targets), first, second)
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    sum(model.calculate_loss(data)).backward()
    profile.plain("fused Adam", optimizer.step)
    profile.plain("whole step", contender.step)
    return profile.rows


def model_view(outputs: Tensor, ratio: Tensor) -> Any:
    """What the consistency loss reads of `Perspectives`."""
    from recbole_prism.model.sequential_recommender.prism import Perspectives

    return Perspectives(ratio, ratio.argmax(-1), ratio > 0, ratio, outputs)


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--dataset", default="amazon-toys")
    arguments = common.parse(parser)
    rows = measure(common.ours("PRISM", "PRISM", arguments.dataset, arguments))
    header = ("part", "forward, ms", "forward and backward, ms")
    text = common.table(header, [(name, f"{forward:.1f}", f"{both:.1f}") for name, forward, both in rows])
    common.write(arguments, "step_profile", f"A PRISM step on {arguments.dataset}", text, {"parts_ms": rows})


if __name__ == "__main__":
    main()
