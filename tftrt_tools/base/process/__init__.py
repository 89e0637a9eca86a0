"""Processes: children that do a job, signals, and what a process says while it works."""
