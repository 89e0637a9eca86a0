"""Calibration in child processes."""
