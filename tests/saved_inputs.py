"""Inputs of the sample models, as files."""

import numpy as np

from tests.zoo import zoo_inputs


def saved_inputs(path, name, batch=6):
    """Sample inputs of all signatures as an .npz with SIGNATURE/INPUT names."""
    arrays = {
        f"{signature}/{key}": value.astype("S") if value.dtype == object else value
        for signature, inputs in zoo_inputs(name, batch).items()
        for key, value in inputs.items()
    }
    np.savez(path, **arrays)
    return path
