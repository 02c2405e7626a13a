"""Bars where a person looks, and log lines beside them."""

from __future__ import annotations

import io
import logging
import sys

import pytest

from recbole_prism.progress import ConsoleHandler, progress, row_bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "enabled", "shown"), [(Terminal, True, True), (Terminal, False, False), (io.StringIO, True, False)]
)
def test_bar_is_drawn_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, stream: type, enabled: bool, shown: bool
) -> None:
    output = stream()
    monkeypatch.setattr(sys, "stderr", output)
    assert list(progress(range(3), description="epoch", enabled=enabled)) == [0, 1, 2]
    with row_bar(description="rows", total=10, enabled=enabled) as bar:
        bar.update(10)
    assert ("epoch" in output.getvalue()) is shown and ("rows" in output.getvalue()) is shown


def test_log_records_go_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    record = logging.LogRecord("recbole_prism", logging.INFO, __file__, 1, "epoch %d", (3,), None)
    ConsoleHandler().emit(record)
    captured = capsys.readouterr()
    assert captured.err.strip() == "epoch 3" and captured.out == ""
