"""Whether runs may stand beside each other: the same data, the same test rows, the same way of ranking and choosing."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from recbole_prism.errors import EvaluationError
from recbole_prism.run_artifact import RunArtifact

_COUNTS = {
    "n_users": "users", "n_items": "items", "n_interactions": "interactions", "n_train_rows": "training rows",
    "n_valid_rows": "validation rows", "n_test_rows": "test rows",
}  # fmt: skip
_BUDGET = ("epochs", "stopping_step", "MAX_ITEM_LIST_LENGTH", "train_batch_size")
_NAME = re.compile(r"(?P<model>.+)-(?P<identity>[0-9a-f]{12})-s(?P<seed>\d+)")


def protocol_of(run: RunArtifact) -> dict[str, Any]:
    """What must be equal for two runs to be compared: name in words -> value."""
    protocol, test = run.metrics["protocol"], run.ranks("test")
    targets = hashlib.sha256()
    for array in (test.user, test.target, test.position):
        targets.update(array.astype("<i8").tobytes())
    return {
        "data set": run.dataset["name"],
        **{words: run.dataset[key] for key, words in _COUNTS.items()},
        "split": protocol["eval_args"],
        "candidates": protocol["n_candidates"],
        "seen items removed": protocol["mask_history"],
        "ties": protocol["ties"],
        "weights chosen by": run.metrics["valid_metric"],
        "test targets": targets.hexdigest()[:12],
    }


def common_protocol(runs: Sequence[RunArtifact]) -> dict[str, Any]:
    """The protocol that all runs share.

    Raises:
        EvaluationError: Two of them differ; names both and in what.
    """
    first = protocol_of(runs[0])
    for run in runs[1:]:
        other = protocol_of(run)
        unequal = [name for name in first if first[name] != other[name]]
        if unequal:
            shown = "; ".join(f"{name}: {first[name]} and {other[name]}" for name in unequal)
            raise EvaluationError(
                f"{runs[0].path.name} and {run.path.name} were not measured alike: {shown}",
                "numbers of different data or protocols do not belong into one table or test",
            )
    return first


def protocol_line(protocol: Mapping[str, Any], runs: Sequence[RunArtifact]) -> str:
    """Data, split, ranking, choice and training budget in one sentence.

    Args:
        protocol: From `common_protocol`.
        runs: Whose budget is told; a setting that differs between them is said to differ.
    """
    split = protocol["split"]
    parts = ", ".join(f"{key} {value}" for key, value in split.get("split", {}).items())
    budget = []
    for key in _BUDGET:
        values = sorted({str(run.config.get(key)) for run in runs})
        budget.append(f"{key} {values[0] if len(values) == 1 else 'differs (' + ', '.join(values) + ')'}")
    seen = "removed" if protocol["seen items removed"] else "left in"
    return (
        f"{protocol['users'] - 1:,} users, {protocol['items'] - 1:,} items, {protocol['interactions']:,} interactions; "
        f"split {parts}, order {split.get('order')}; {protocol['test rows']:,} test rows, all "
        f"{protocol['candidates']:,} items ranked, ties by {protocol['ties']}; weights chosen by validation "
        f"{protocol['weights chosen by']} with seen items {seen}; {', '.join(budget)}."
    )


def by_seed(runs: Sequence[RunArtifact]) -> dict[int, RunArtifact]:
    """Runs of one configuration by their seed, in rising order.

    Raises:
        EvaluationError: They are of different settings, data or sources, or a seed stands twice.
    """
    identities = {_parts(run)[:2] for run in runs}
    if len(identities) != 1:
        names = ", ".join(sorted("-".join(identity) for identity in identities))
        raise EvaluationError(f"runs of different settings, data or sources as one: {names}", "name one of them")
    found: dict[int, RunArtifact] = {}
    for run in sorted(runs, key=lambda run: _parts(run)[2]):
        seed = _parts(run)[2]
        if seed in found:
            raise EvaluationError(f"{found[seed].path} and {run.path} are the same run", "name one of them")
        found[seed] = run
    return found


def _parts(run: RunArtifact) -> tuple[str, str, int]:
    match = _NAME.fullmatch(run.path.name)
    if match is None:
        raise EvaluationError(f"{run.path} is not called <model>-<identity>-s<seed>", "give it its name back")
    return match["model"], match["identity"], int(match["seed"])
