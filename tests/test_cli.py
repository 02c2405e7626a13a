"""The command line: arguments, messages, exit codes; the front door by subprocess."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any, Optional

import pytest

import recbole_prism
from recbole_prism import cli, doctor
from recbole_prism.errors import ConfigError
from recbole_prism.registry import list_models

ROOT = Path(__file__).parent.parent
MASKED = {"hit@5": 0.05, "hit@10": 0.1, "ndcg@5": 0.02345, "ndcg@10": 0.04}
UNMASKED = {"hit@5": 0.03125}
RESULT = {
    "test_result": MASKED,
    "test_result_masked": MASKED,
    "test_result_unmasked": UNMASKED,
    "model": "PRISM",
    "dataset": "toys",
    "run_directory": "saved/x",
    "reused": False,
}


class FakeRun:
    """Stands in for quick_start: notes what it was called with."""

    def __init__(self, error: Optional[BaseException] = None) -> None:
        self.error = error
        self.called_with: dict[str, Any] = {}

    def __call__(self, **arguments: Any) -> dict[str, Any]:
        self.called_with = arguments
        if self.error is not None:
            raise self.error
        return RESULT


@pytest.fixture
def fake_run(monkeypatch: pytest.MonkeyPatch) -> FakeRun:
    fake = FakeRun()
    monkeypatch.setattr(recbole_prism, "quick_start", types.SimpleNamespace(run=fake), raising=False)
    return fake


def test_values_with_and_without_equals_sign() -> None:
    arguments = ["--model=PRISM", "--epochs", "5", "--learning_rate", "1e-3", "--topk=[5,10]", "--x=a=b", "--low", "-1"]
    assert cli.parse_command_line([*arguments, "--eval_args={mode: full}", "--clip_grad_norm=~", "--overwrite"]) == {
        "model": "PRISM",
        "epochs": 5,
        "learning_rate": 1e-3,
        "topk": [5, 10],
        "x": "a=b",
        "low": -1,
        "eval_args": {"mode": "full"},
        "clip_grad_norm": None,
        "overwrite": True,
    }


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[3,inf)", "[3,inf)"),
        ("[3,10]", "[3,10]"),
        ("(0,1];[3,inf)", "(0,1];[3,inf)"),
        ("'[3,inf)'", "[3,inf)"),
        ("2024", "2024"),
        ("~", None),
    ],
)
def test_a_key_that_wants_text_takes_it_as_it_stands(text: str, value: Optional[str]) -> None:
    for arguments in ([f"--user_inter_num_interval={text}"], ["--user_inter_num_interval", text]):
        assert cli.parse_command_line(arguments) == {"user_inter_num_interval": value}
    assert cli.parse_command_line(['--field_separator="\\t"']) == {"field_separator": "\t"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["epochs=5"], "write --epochs=5"),  # C1
        (["-epochs=5"], "write --epochs=5"),
        (["5"], "--key=value or --key value"),
        (["--show_progress"], "has no value"),
        (["--epochs", "--seed=1"], "--epochs has no value"),
        (["--epochs=5", "--epochs=6"], "given twice: 5 and 6"),  # C6
        (["--topk=[5"], "cannot read the value"),
    ],
)
def test_other_forms_are_refused(arguments: list[str], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        cli.parse_command_line(arguments)
    assert words in str(caught.value)


def test_the_same_value_twice_is_no_conflict() -> None:
    assert cli.parse_command_line(["--epochs=5", "--epochs", "5"]) == {"epochs": 5}


def test_run_hands_plain_settings_on(fake_run: FakeRun, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "--model=PRISM", "--dataset=toys", "--config_files=a.yaml b.yaml", "--overwrite"]) == 0
    assert fake_run.called_with == {
        "config_file_list": ["a.yaml", "b.yaml"],
        "command_line": {"model": "PRISM", "dataset": "toys"},
        "overwrite": True,
    }
    printed = capsys.readouterr().out
    assert "Hit                    0.0500   0.1000" in printed and "saved/x" in printed


def test_without_arguments_the_quick_recipe_and_it_says_so(
    fake_run: FakeRun, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["run"]) == 0
    assert fake_run.called_with["command_line"] == {"model": "PRISM", "dataset": "ml-100k"}
    (recipe,) = fake_run.called_with["config_file_list"]
    assert recipe.endswith("recipe/ml-100k/PRISM.yaml")
    assert "quick recipe" in capsys.readouterr().out


def test_recipes_are_found_by_data_set(fake_run: FakeRun, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "--model=PRISM", "--recipe=PRISM"]) == 2
    assert "add --dataset=NAME" in capsys.readouterr().err
    assert cli.main(["run", "--dataset=ml-100k", "--recipe=NoSuch"]) == 2
    assert "recipes: PRISM" in capsys.readouterr().err


def test_errors_for_users_have_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for error, code, words in [
        (ConfigError("a is wrong", "make it b"), 2, "error: a is wrong\n  -> make it b\n"),
        (ConfigError("a is wrong"), 2, "error: a is wrong\n"),
        (KeyboardInterrupt(), 130, "\nstopped. The same command goes on after the last finished epoch.\n"),
    ]:
        fake = types.SimpleNamespace(run=FakeRun(error))
        monkeypatch.setattr(recbole_prism, "quick_start", fake, raising=False)
        assert cli.main(["run", "--model=PRISM"]) == code
        assert capsys.readouterr().err == words
    monkeypatch.setattr(recbole_prism, "quick_start", types.SimpleNamespace(run=FakeRun(ZeroDivisionError())))
    with pytest.raises(ZeroDivisionError):  # our own mistakes are not dressed up
        cli.main(["run", "--model=PRISM"])


def test_result_table_shows_what_stops_training_first_and_the_other_protocol_too() -> None:
    assert cli.format_result(RESULT).splitlines()[1:] == [
        "PRISM on toys, test rows, all items ranked, seen items removed",
        "                           @5      @10",
        "Hit                    0.0500   0.1000",
        "NDCG                   0.0234   0.0400",
        "seen items left in: Hit@5 0.0312",
        "saved in saved/x",
    ]
    text = cli.format_result({**RESULT, "test_result": UNMASKED, "run_directory": None})
    assert "seen items left in\n" in text and "seen items removed: Hit@5 0.0500" in text and "saved" not in text


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == cli.main(["--help"]) == cli.main(["--version"]) == cli.main(["run", "--help"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in (*list_models(), *cli.VERBS, recbole_prism.__version__))


def test_every_verb_exists_and_unknown_ones_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert all(callable(cli._handler(verb)) for verb in cli.VERBS)
    assert cli.main(["docter"]) == 2 and "did you mean doctor?" in capsys.readouterr().err


def test_doctor_reports_versions_device_threads_and_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = doctor.util.find_spec
    monkeypatch.setattr(doctor.util, "find_spec", lambda name: None if name == "matplotlib" else found(name))
    assert cli.main(["doctor"]) == 0
    printed = capsys.readouterr().out
    assert all(word in printed for word in ("Python 3", "recbole 1.2", "torch 2", "device: c", "threads: "))
    assert "figures: missing matplotlib  ->  in the checkout: pip install '.[plots]'" in printed


def test_doctor_knows_the_extras_of_setup_py() -> None:
    tree = ast.parse((ROOT / "setup.py").read_text(encoding="utf-8"))
    (extras,) = [
        node.value for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg == "extras_require"
    ]
    assert isinstance(extras, ast.Dict)
    assert [key.value for key in extras.keys if isinstance(key, ast.Constant)] == list(doctor.EXTRAS)


def front_door(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-W", "ignore", str(ROOT / "run_recbole_prism.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--model=SASRecc", "--dataset=ml-100k"], "did you mean SASRec?"),
        (["--model=PRISM", "--dataset=ml-100k", "--hiden_size=8"], "did you mean hidden_size?"),
    ],
)
def test_front_door_refuses_in_two_lines(arguments: list[str], words: str) -> None:
    done = front_door(*arguments)
    assert done.returncode == 2 and words in done.stderr and "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 2


def test_front_door_trains_reports_and_reuses(tmp_path: Path) -> None:
    (tmp_path / "toys").mkdir()
    events = [f"u{user}\ti{(user + step) % 12}\t{step}" for user in range(8) for step in range(6)]
    lines = ["user_id:token\titem_id:token\ttimestamp:float", *events]
    (tmp_path / "toys" / "toys.inter").write_text("\n".join(lines), encoding="utf-8")
    arguments = ["--model=PRISM", "--dataset", "toys", f"--data_path={tmp_path}", f"--checkpoint_dir={tmp_path}/saved"]
    arguments += ["--epochs=1", "--hidden_size=8", "--topk=[5,10]", "--valid_metric=NDCG@10", "--device=cpu"]
    first = front_door(*arguments)
    assert first.returncode == 0, first.stderr
    assert "PRISM on toys" in first.stdout and f"saved in {tmp_path}/saved/toys/PRISM-" in first.stdout
    second = front_door(*arguments)
    assert "read from" in second.stdout and first.stdout.splitlines()[:-1] == second.stdout.splitlines()[:-1]


def test_output_that_is_not_read_or_finds_no_room_gives_no_traceback() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    cases = [(writer, "", 141, "")]
    if os.path.exists("/dev/full"):  # Linux
        message = "error: the output cannot be written: No space left on device\n"
        cases.append((os.open("/dev/full", os.O_WRONLY), "1", 1, message))
    for place, unbuffered, status, message in cases:
        command = [sys.executable, "-m", "recbole_prism", "run", "--help"]
        environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
        done = subprocess.run(
            command, cwd=ROOT, env=environment, stdout=place, stderr=subprocess.PIPE, text=True, timeout=100
        )
        os.close(place)
        assert (done.returncode, done.stderr) == (status, message)
