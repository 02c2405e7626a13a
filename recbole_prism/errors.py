"""Errors this package raises for its users: each names the cause and, where one is known, the cure."""

from __future__ import annotations


class RecBolePrismError(Exception):
    """Base of every error that a user can do something about.

    Args:
        cause: What is wrong and where, in one sentence.
        cure: What to do about it; empty if nothing general can be said.
    """

    def __init__(self, cause: str, cure: str = "") -> None:
        super().__init__(cause, cure)
        self.cause = cause
        self.cure = cure

    def __str__(self) -> str:
        return f"{self.cause}\n  -> {self.cure}" if self.cure else self.cause


class ConfigError(RecBolePrismError):
    """A setting is unknown, of the wrong type, out of range or in conflict with another one."""


class DataError(RecBolePrismError):
    """A data file is missing or cannot be used as it is."""


class ModelError(RecBolePrismError):
    """A model name is unknown, or a model does not keep the contract that the package relies on."""


class EvaluationError(RecBolePrismError):
    """An evaluation was asked for that this package does not offer."""


class NonFiniteError(RecBolePrismError):
    """A loss, gradient, parameter or score is NaN or infinite."""


class RunDirectoryError(RecBolePrismError):
    """A run directory is incomplete, damaged, in use or of another schema version."""
