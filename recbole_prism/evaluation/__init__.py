"""Scores -> ranks -> metrics."""
