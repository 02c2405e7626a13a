"""Code in the documentation runs, and what the README claims about commands exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from recbole_prism.quick_start import load, run

ROOT = Path(__file__).parents[1]


def code_blocks(document: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", document.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_plug_in_example_runs_and_is_causal() -> None:
    (code,) = code_blocks(ROOT / "docs/plug_in.md")
    torch.manual_seed(0)
    names: dict = {}
    exec(compile(code, "docs/plug_in.md", "exec"), names)
    assert names["representation"].shape == (2, 32)
    encoder = names["encoder"].eval()
    wider = torch.nn.functional.pad(names["item_seq"], (0, 3))
    lengths = torch.tensor([3, 1])
    assert torch.allclose(encoder(wider, lengths), encoder(names["item_seq"], lengths), atol=1e-6)
    names["representation"].sum().backward()
    without = [name for name, p in names["encoder"].named_parameters() if p.grad is None]
    assert not without


def test_example_of_an_own_model_trains(toy_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = code_blocks(ROOT / "CONTRIBUTING.md")
    (tmp_path / "my_module.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    settings = {"data_path": str(toy_path), "checkpoint_dir": str(tmp_path / "runs"), "device": "cpu", "epochs": 1}
    result = run("my_module:MyModel", "cyclic", config_dict=settings)
    assert 0 <= result["test_result"]["hit@5"] <= 1
    assert "penalty" in load(result["run_directory"], device="cpu").history[0]["loss"]


@pytest.mark.parametrize(
    "document", sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").rglob("*.md")), ids=lambda p: p.name
)
def test_links_and_paths_exist(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        if not target.startswith("http"):
            assert (document.parent / target).exists(), target
    for path in re.findall(r"`((?:properties|recbole_prism|tests|docs|results|benchmarks)/[\w./-]+)`", text):
        assert (ROOT / path).exists(), path
