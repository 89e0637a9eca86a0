"""Make one SavedModel and its rows, in the environment of its case: `python -m … MODULE MAKER PACKAGES TARGET`."""

import importlib
import pathlib
import sys

import numpy as np


def main(module: str, maker: str, packages: str, target: str) -> None:
    path = pathlib.Path(target)
    rows, classes = getattr(importlib.import_module(module), maker)(pathlib.Path(packages), path)
    count = next(len(value) for value in rows.values() if value.ndim)
    judged = np.arange(count) % 4 < 2  # by twos: classes may alternate
    for part, chosen in (("rows", judged), ("calibration", ~judged)):
        parts = {name: _fixed(value[chosen]) if value.ndim else value for name, value in rows.items()}
        np.savez_compressed(path.with_name(f"{path.name}.{part}.npz"), **parts)
    if classes is not None:
        np.save(path.with_name(f"{path.name}.labels.npy"), np.asarray(classes)[judged])


def _fixed(values):
    """Strings as arrays of a fixed width, which need no pickle."""
    if values.dtype != object and values.dtype.kind != "U":
        return values
    return np.array([text.encode() if isinstance(text, str) else text for text in values], "S")


if __name__ == "__main__":
    main(*sys.argv[1:])
