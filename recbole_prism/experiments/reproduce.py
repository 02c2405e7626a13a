"""Tables and figures of the paper from our own runs: which runs there must be, and which of them are there."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from recbole_prism import registry
from recbole_prism.config import Config
from recbole_prism.data.prepare import config_with_data
from recbole_prism.errors import ConfigError, DataError, ModelError
from recbole_prism.experiments.estimate import Estimate, Speed
from recbole_prism.experiments.queue import Job, plan_jobs
from recbole_prism.experiments.studies import Study, Variant
from recbole_prism.run_artifact import RunArtifact, read_run
from recbole_prism.run_store import COMPLETE, RunSpec, RunStore, find_runs

logger = logging.getLogger("recbole_prism")


@dataclass(frozen=True)
class StudyPlan:
    """A study with its runs.

    Attributes:
        study: What is to be shown.
        datasets: Those whose data is there.
        seeds: Of every variant.
        jobs: All runs, in the order in which they are made.
        variants: Variant and data set of each job.
        left_out: What cannot be run, and why.
        estimates: What each job will take.
    """

    study: Study
    datasets: tuple[str, ...]
    seeds: tuple[int, ...]
    jobs: list[Job]
    variants: list[tuple[Variant, str]]
    left_out: list[str]
    estimates: list[Estimate]

    def runs(self, dataset: str) -> dict[str, dict[int, RunArtifact]]:
        """Complete runs on a data set: by variant's key, by seed. Variants without one have an empty mapping."""
        found: dict[str, dict[int, RunArtifact]] = {variant.key: {} for variant in self.study.variants}
        for job, (variant, name) in zip(self.jobs, self.variants):
            if name == dataset and job.state == COMPLETE:
                found[variant.key][job.spec.seed] = read_run(job.path)
        return found

    def missing(self, dataset: str) -> list[str]:
        """Runs on a data set that are not complete."""
        return [
            f"{variant.label}, seed {job.spec.seed}: {job.state}{f' ({job.reason})' if job.reason else ''}"
            for job, (variant, name) in zip(self.jobs, self.variants)
            if name == dataset and job.state != COMPLETE
        ]


def plan_study(
    study: Study,
    datasets: Sequence[str],
    seeds: Sequence[int],
    settings: Mapping[str, Any],
    *,
    make_jobs: Callable[[Sequence[RunSpec]], list[Job]] = plan_jobs,
    prepares: bool = True,
    measured: Optional[Path] = None,
) -> StudyPlan:
    """Look at what there is and what is to be run; nothing is trained.

    Args:
        study: What is to be shown.
        datasets: On which data sets.
        seeds: With which seeds.
        settings: Of all runs.
        make_jobs: Checks the runs and looks at what is there.
        prepares: Prepare data that is known and not there; else it is left out.
        measured: Folder whose complete runs, slim ones too, tell how fast this machine is, besides those where the runs
            go.

    Raises:
        RecBolePrismError: A setting is wrong, or nothing can be run at all.
    """
    left_out: list[str] = []
    variants = _known_variants(study, left_out)
    usable = _usable_datasets(datasets, settings, prepares, left_out)
    if not variants or not usable:
        raise ConfigError(f"nothing of {study.name} can be run: {'; '.join(left_out)}", "prepare a data set first")
    known = Study(**{**vars(study), "variants": variants})
    jobs = make_jobs(known.specs(usable, seeds, settings))
    pairs = [(variant, dataset) for _ in seeds for dataset in usable for variant in variants]
    folders = [Path(jobs[0].config["checkpoint_dir"]).expanduser(), *([measured] if measured else [])]
    speed = Speed(run for folder in folders for run in find_runs(folder))
    store = RunStore()
    estimates = [speed.of(job, store.info(job.config).n_train_rows) for job in jobs]
    return StudyPlan(known, tuple(usable), tuple(seeds), jobs, pairs, left_out, estimates)


def _known_variants(study: Study, left_out: list[str]) -> tuple[Variant, ...]:
    found = []
    for variant in study.variants:
        try:
            registry.resolve(variant.model)
            found.append(variant)
        except ModelError as error:
            left_out.append(f"{variant.label}: {error.cause}")
    return tuple(found)


def _usable_datasets(
    datasets: Sequence[str], settings: Mapping[str, Any], prepares: bool, left_out: list[str]
) -> list[str]:
    found = []
    for dataset in datasets:
        try:
            arguments = ("SASRec", dataset, None, {key: settings[key] for key in ("data_path",) if key in settings})
            config_with_data(*arguments) if prepares else Config(*arguments)
            found.append(dataset)
        except DataError as error:
            left_out.append(f"{dataset}: {error.cause}" + (f" ({error.cure})" if error.cure else ""))
    return found


def job_lines(plan: StudyPlan) -> list[str]:
    """What `--dry-run` prints: every run, its state and what it will take."""
    width = max(len(job.spec.label) for job in plan.jobs)
    lines = []
    for job, estimate in zip(plan.jobs, plan.estimates):
        state = "there" if job.state == COMPLETE else job.state
        lines.append(f"  {job.spec.label:<{width}}  {state:<9}  {_told(estimate)}".rstrip())
    return lines


def _told(estimate: Estimate) -> str:
    if estimate.seconds is None:
        return estimate.basis
    if estimate.seconds == 0.0:
        return ""
    word = "at most" if estimate.is_bound else "about"
    return f"{word} {estimate.seconds / 3600:.2f} h ({estimate.basis})"


def counts_of(datasets: Sequence[str], settings: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[str]]:
    """Table 1: counts of data sets as they are here.

    Args:
        datasets: Which.
        settings: As for a run, e.g. data_path.

    Returns:
        Per data set that is there its dataset, users, items, interactions, avg_length and sparsity; and what is not
        there.
    """
    left_out: list[str] = []
    rows = []
    store = RunStore()
    for dataset in _usable_datasets(datasets, settings, False, left_out):
        info = store.info(Config("SASRec", dataset, None, settings))
        users, items, events = info.n_users - 1, info.n_items - 1, info.n_interactions
        rows.append(
            {
                "dataset": dataset,
                "users": users,
                "items": items,
                "interactions": events,
                "avg_length": events / users,
                "sparsity": 1 - events / (users * items),
            }
        )
    return rows, left_out
