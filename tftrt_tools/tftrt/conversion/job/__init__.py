"""Conversion and building, in child processes."""
