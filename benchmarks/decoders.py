"""How far TensorFlow's decoder of JPEG is from Pillow's, and how long a signature of `tftrt wrap` decodes.

python -m benchmarks.decoders PHOTOS     a folder of JPEG files; without one, smooth pictures drawn from a seed
"""

from __future__ import annotations

import io
import pathlib
import sys
import time

import numpy as np

NEEDS_GPU = False
QUALITIES, SIZE = (75, 95), (480, 640)
BATCHES, REPEATS = (1, 8, 32), 15


def drawn():
    """{title: JPEG files} of smooth pictures."""
    from PIL import Image

    rng = np.random.default_rng(0)
    coarse = [rng.integers(0, 256, (SIZE[0] // 16, SIZE[1] // 16, 3), np.uint8) for _ in range(8)]
    found = {}
    for quality in QUALITIES:
        files = []
        for one in coarse:
            file = io.BytesIO()
            Image.fromarray(one).resize(SIZE[::-1], Image.Resampling.BICUBIC).save(file, "JPEG", quality=quality)
            files.append(file.getvalue())
        found[f"{SIZE[1]} x {SIZE[0]}, quality {quality}"] = files
    return found


def differences(files):
    """(mean, largest) difference of a pixel between the decoders."""
    import tensorflow as tf

    from tftrt_tools.tftrt.wrapping import client_side

    found = [
        np.abs(tf.io.decode_image(data, channels=3).numpy().astype(int) - client_side.decoded(data, 3).pixels)
        for data in files
    ]
    return np.mean([one.mean() for one in found]), max(one.max() for one in found)


def timed(files):
    """{rows of a request: median milliseconds} of decoding and resizing to 224 x 224, as a signature does it."""
    import tensorflow as tf

    from tftrt_tools.models.inputs.options import DataOptions
    from tftrt_tools.tftrt.wrapping.added import Pictures
    from tftrt_tools.tftrt.wrapping.job import encoded

    pictures = Pictures(
        input="image",
        dtype="float32",
        shape=(None, 224, 224, 3),
        size=(224, 224),
        channels=3,
        first=False,
        options=DataOptions(),
        max_pixels=10**8,
        broken="fail",
    )
    function = tf.function(
        lambda data: encoded.pixels(data, pictures)[0], input_signature=[tf.TensorSpec([None], tf.string)]
    )
    found = {}
    for rows in BATCHES:
        request = tf.constant([files[number % len(files)] for number in range(rows)])
        seconds = []
        for _ in range(REPEATS + 3):
            start = time.perf_counter()
            function(request).numpy()
            seconds.append(time.perf_counter() - start)
        found[rows] = 1e3 * np.median(seconds[3:])
    return found


def main(argv):
    """Print both."""
    given = sorted(pathlib.Path(argv[0]).rglob("*.jp*g")) if argv else []
    sets = {f"{len(given)} files": [path.read_bytes() for path in given]} if given else drawn()
    for title, files in sets.items():
        mean, largest = differences(files)
        times = ", ".join(f"{rows}: {milliseconds:.1f} ms" for rows, milliseconds in timed(files).items())
        print(
            f"{title}: pixels differ by {mean:.2f} on average, {largest} at most; decoded by rows of a request: {times}"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
