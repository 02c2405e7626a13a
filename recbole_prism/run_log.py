"""The log of one run: shown where nobody else shows it, and written into the run's own directory."""

from __future__ import annotations

import logging
from contextlib import suppress
from logging.handlers import MemoryHandler
from pathlib import Path
from types import TracebackType
from typing import Optional

from recbole_prism.progress import ConsoleHandler
from recbole_prism.run_files import writing

LOG_FILE = "run.log"
_FILE_FORMAT = "%(asctime)s %(levelname)s %(message)s"

logger = logging.getLogger("recbole_prism")


class _LogFile(logging.FileHandler):
    """A log file that stops quietly on a full disk: the files that the run needs report it."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Show no traceback per record."""

    def close(self) -> None:
        """Close without hiding the error that ended the run."""
        with suppress(OSError):
            super().close()


class RunLog:
    """A context manager around one run; afterwards the logger is as it was before.

    Records go to standard error if neither this package's logger nor the root logger has a handler, and into a file
    from `write_to` on, those from before included.
    """

    def __enter__(self) -> "RunLog":
        self._level = logger.level
        self._waiting = MemoryHandler(capacity=1_000_000, flushLevel=logging.CRITICAL + 1)
        self._file: Optional[logging.Handler] = None
        self._console = None if logger.handlers or logging.getLogger().handlers else ConsoleHandler()
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.INFO)
        for handler in filter(None, (self._waiting, self._console)):
            logger.addHandler(handler)
        return self

    def set_level(self, level: str) -> None:
        """Leave records below a level out from now on, on the terminal and in the file: RecBole's key `state`."""
        logger.setLevel(level.upper())

    def write_to(self, directory: Path) -> None:
        """Write this run's records into a directory, after those of earlier attempts at the same run."""
        with writing(directory / LOG_FILE):
            self._file = _LogFile(directory / LOG_FILE, encoding="utf-8")
        self._file.setFormatter(logging.Formatter(_FILE_FORMAT))
        for record in self._waiting.buffer:
            self._file.handle(record)
        logger.removeHandler(self._waiting)
        logger.addHandler(self._file)

    def close_file(self) -> None:
        """Stop writing: the directory is about to be declared complete."""
        if self._file is not None:
            logger.removeHandler(self._file)
            self._file.close()
            self._file = None

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], traceback: Optional[TracebackType]
    ) -> None:
        self.close_file()
        for handler in filter(None, (self._waiting, self._console)):
            logger.removeHandler(handler)
        logger.setLevel(self._level)
