"""Benchmarks of this project. `python -m benchmarks` lists them and runs those that this machine can run."""
