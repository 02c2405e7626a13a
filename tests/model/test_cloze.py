"""The cloze task: appended items by hand, masking against a loop over rows, and its rates."""

from __future__ import annotations

import pytest
import torch

from recbole_prism.model.functional.cloze import append_item, mask_items, mask_items_as_recbole

MASK = 99


def test_append_by_hand() -> None:
    seq, lengths = torch.tensor([[1, 2, 3], [4, 5, 0], [6, 0, 0]]), torch.tensor([3, 2, 1])
    roomy = append_item(seq, lengths, MASK, 5)
    assert roomy[0].tolist() == [[1, 2, 3, MASK], [4, 5, MASK, 0], [6, MASK, 0, 0]] and roomy[1].tolist() == [4, 3, 2]
    full = append_item(seq, lengths, torch.tensor([7, 8, 9]), 3)
    assert full[0].tolist() == [[2, 3, 7], [4, 5, 8], [6, 9, 0]] and full[1].tolist() == [3, 3, 2]
    stock = append_item(seq, lengths, MASK, 5, "recbole")
    assert stock[0].tolist() == [[2, 3, MASK], [5, MASK, 0], [MASK, 0, 0]] and stock[1].tolist() == [3, 2, 1]
    assert append_item(torch.tensor([[1]]), torch.tensor([1]), MASK, 1)[0].tolist() == [[MASK]]


@pytest.mark.parametrize("max_length", [8, 20])
def test_masks_against_a_loop(max_length: int) -> None:
    """Both rules; with T = 8 RecBole's counts at most int(0.4 * 8) = 3 masks of a row."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(1, 9, (300,), generator=generator)
    seq = torch.randint(1, 50, (300, 8), generator=generator) * (torch.arange(8) < lengths[:, None])
    draws = torch.rand(300, 8, generator=generator, dtype=torch.float64)
    last_only = torch.rand(300, generator=generator) < 0.3
    ours = mask_items(seq, lengths, last_only, draws, 0.4, MASK)
    stock = mask_items_as_recbole(seq, lengths, last_only, draws, 0.4, MASK, max_length)
    n_masked = n_counted = 0
    for b in range(300):
        length = int(lengths[b])
        drawn = [t for t in range(length) if draws[b, t] < 0.4]
        if last_only[b]:
            drawn = [length - 1]
        counted = [t for t in drawn[-int(0.4 * max_length) :] if t > 0]
        for style, places, labelled in (("recbole", drawn, counted), ("ours", drawn or [length - 1], None)):
            labelled = places if labelled is None else labelled
            masked, labels = stock if style == "recbole" else ours
            assert torch.nonzero(masked[b] == MASK).flatten().tolist() == places
            assert {t: int(labels[b, t]) for t in range(8) if labels[b, t]} == {t: int(seq[b, t]) for t in labelled}
            kept = masked[b] != MASK
            assert torch.equal(masked[b][kept], seq[b][kept])
        n_masked, n_counted = n_masked + len(drawn), n_counted + len(counted)
    assert n_counted < n_masked  # some of RecBole's masks had no label
