"""Folders of pictures."""

import numpy as np
from PIL import Image

FOLDERS = ("ant", "bee", "cat")


def pictures(folder, each=4, names=FOLDERS):
    """A picture folder, `each` 8 x 8 pictures a class; no two are equal. Returns: {class: [pixel values, uint8]}."""
    rng, found = np.random.default_rng(0), {}
    for name in names:
        (folder / name).mkdir(parents=True)
        found[name] = rng.integers(0, 256, (each, 8, 8), np.uint8)
        for number, pixels in enumerate(found[name]):
            Image.fromarray(pixels).save(folder / name / f"{number}.png")
    return found
