"""Models beside each other: what is to be run, and the tables of what was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

from recbole_prism import registry, run_files
from recbole_prism.errors import ConfigError
from recbole_prism.experiments.queue import Job
from recbole_prism.experiments.table import Table, build_tables
from recbole_prism.experiments.table_text import to_csv, to_json, to_latex, to_markdown
from recbole_prism.run_artifact import RunArtifact, read_run
from recbole_prism.run_store import COMPLETE, RunSpec

FIRST_SEED = 2020


def benchmark_specs(
    models: Sequence[str],
    datasets: Sequence[str],
    n_seeds: int,
    settings: Mapping[str, Any],
    files: Sequence[str] = (),
) -> list[RunSpec]:
    """The runs of a benchmark: all models with the first seed, then all with the second, so that an early stop
    leaves whole tables.

    Args:
        models: As in `--model=`.
        datasets: Their names.
        n_seeds: Seeds 2020, 2021, ...
        settings: Of all runs.
        files: Settings files of all runs.

    Raises:
        ConfigError: A model or data set stands twice, or there is none, or no seed.
        ModelError: A model is unknown.
    """
    if n_seeds < 1:
        raise ConfigError(f"seeds is {n_seeds}", "--seeds=5 runs the seeds 2020 to 2024")
    entries = [registry.resolve(model) for model in models]
    names = [entry.spec for entry in entries]
    for kind, given in (("model", names), ("data set", list(datasets))):
        if not given:
            raise ConfigError(f"no {kind} is named", "--models=PRISM,SASRec --datasets=ml-100k")
        twice = [name for name in given if given.count(name) > 1]
        if twice:
            raise ConfigError(f"the {kind} {twice[0]} stands twice", "name it once")
    return [
        RunSpec(f"{model.replace(':', '-')}-{dataset}", model, dataset, FIRST_SEED + number, settings, tuple(files))
        for dataset in datasets
        for number in range(n_seeds)
        for model in names
    ]


def benchmark_tables(jobs: Sequence[Job], with_paper: bool = False) -> list[Table]:
    """Tables of the complete runs among the jobs, two for each data set that has any.

    Args:
        jobs: Of `benchmark_specs`, after the queue.
        with_paper: Add the paper's printed numbers.

    Raises:
        EvaluationError: Runs of one data set were not measured alike.
        RunDirectoryError: A run was changed meanwhile.
    """
    tables: list[Table] = []
    shown = {job.spec.model: job.config.model_entry.display_name for job in jobs}
    labels = {model: name if list(shown.values()).count(name) == 1 else model for model, name in shown.items()}
    for dataset in dict.fromkeys(job.spec.dataset for job in jobs):
        groups: dict[str, list[RunArtifact]] = {}
        for job in jobs:
            if job.spec.dataset == dataset and job.state == COMPLETE:
                groups.setdefault(labels[job.spec.model], []).append(read_run(job.path))
        if groups:
            tables += build_tables(groups, with_paper)
    return tables


def write_tables(
    tables: Sequence[Table], folder: Path, title: str, name: str = "benchmark", note: Optional[str] = None
) -> list[Path]:
    """Write name.md, .tex, .csv and .json.

    Args:
        tables: What to write.
        folder: Where to; made if missing.
        title: Heading of the page.
        name: Of the files.
        note: Said below the heading of the page, e.g. what is missing.

    Raises:
        RunDirectoryError: The place cannot be written.
    """
    texts = {
        "md": to_markdown(tables, title, note),
        "tex": to_latex(tables),
        "csv": to_csv(tables),
        "json": to_json(tables),
    }
    with run_files.writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.{suffix}" for suffix in texts]
    for path, text in zip(paths, texts.values()):
        run_files.write_text(path, text)
    return paths


def missing_lines(jobs: Sequence[Job]) -> Optional[str]:
    """Which runs a table lacks, in a sentence; None if none."""
    lacking = [f"{job.spec.label} ({job.state})" for job in jobs if job.state != COMPLETE]
    return f"The table lacks {', '.join(lacking)}." if lacking else None
