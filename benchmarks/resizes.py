"""Resizes in engines: an edge detector and a U-Net with their resizes as products, with them left in TensorFlow, and as plans.

    python -m benchmarks.resizes [--models hed,unet] [--output DIR]

The edge detector is a VGG-16 of 320 x 480 pixels with five side outputs, of which four are resized; the U-Net has 256 x 256 pixels and
three upsamplings. Both have drawn weights. Each conversion is verified, and `tftrt bench` asks all of them in turns, at batch 1 and 8.
"""

import argparse
import concurrent.futures
import pathlib

from benchmarks import _models

NEEDS_GPU = True
# {model: (shape of a row, the batches)}.
MODELS = {"hed": ("320x480x3", (1, 8)), "unet": ("256x256x3", (1, 8))}
WAYS = {
    "left": ["--keep_native_nodes=.*[Rr]esize.*", "--use_dynamic_shape"],
    "products": ["--use_dynamic_shape"],
    "plan": ["--backend=tensorrt"],
}


def hed():
    """A VGG-16 whose five blocks have a side output each, resized to the size of the picture."""
    import tensorflow as tf

    layers = tf.keras.layers
    x = image = tf.keras.Input((320, 480, 3), name="x")
    sides = []
    for block, (channels, count) in enumerate(((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))):
        x = layers.MaxPool2D(2)(x) if block else x
        for _ in range(count):
            x = layers.Conv2D(channels, 3, padding="same", activation="relu")(x)
        side = layers.Conv2D(1, 1)(x)
        sides.append(tf.image.resize(side, (320, 480)) if block else side)
    fused = layers.Conv2D(1, 1)(tf.concat(sides, -1))
    return tf.keras.Model(image, tf.sigmoid(tf.concat([*sides, fused], -1)))


def unet():
    """Three levels with bilinear upsampling."""
    import tensorflow as tf

    layers = tf.keras.layers
    x = image = tf.keras.Input((256, 256, 3), name="x")

    def convolved(x, channels):
        for _ in range(2):
            x = layers.Conv2D(channels, 3, padding="same", activation="relu")(x)
        return x

    skips = []
    for channels in (32, 64, 128):
        x = convolved(x, channels)
        skips.append(x)
        x = layers.MaxPool2D(2)(x)
    x = convolved(x, 256)
    for skip in reversed(skips):
        x = layers.UpSampling2D(2, interpolation="bilinear")(x)
        x = convolved(tf.concat([x, skip], -1), skip.shape[-1])
    return tf.keras.Model(image, layers.Conv2D(2, 1, activation="softmax")(x))


def main(argv=None):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.resizes", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--output", type=pathlib.Path, default=_models.ROOT / "build/bench/resizes")
    parser.add_argument("--make", action="store_true", help="make the models and leave; needs no GPU")
    parser.add_argument(
        "--convert", action="store_true", help="convert and verify what is not there, all at once, and leave"
    )
    options = parser.parse_args(argv)
    names = options.models.split(",")
    options.output.mkdir(parents=True, exist_ok=True)
    for name in names:
        if not (options.output / name).exists():
            _make(name, options.output / name)
    if options.make:
        return
    todo = [(name, way) for name in names for way in WAYS if not (options.output / f"{name}-{way}").exists()]
    with concurrent.futures.ThreadPoolExecutor(max(1, len(todo)) if options.convert else 1) as pool:
        for said in pool.map(lambda one: _converted(*one, options.output), todo):
            print(said, flush=True)
    if not options.convert:
        for name in names:
            _measure(name, options.output)


def _make(name, path):
    import tensorflow as tf

    tf.keras.utils.set_random_seed(1)
    tf.saved_model.save({"hed": hed, "unet": unet}[name](), str(path))


def _converted(name, way, folder):
    """Convert and verify. Returns: what both said."""
    row, batches = MODELS[name]
    target = folder / f"{name}-{way}"
    words = [
        "convert",
        f"--model={folder / name}",
        f"--output={target}",
        "--precision=FP16",
        f"--shapes=x:{','.join(f'{batch}x{row}' for batch in batches)}",
        *WAYS[way],
    ]
    return _said(words) + _said(["verify", folder / name, target])


def _measure(name, folder):
    row, batches = MODELS[name]
    made = [folder / f"{name}-{way}" for way in WAYS if (folder / f"{name}-{way}").exists()]
    for batch in batches:
        print(
            _said(
                [
                    "bench",
                    *made,
                    folder / name,
                    f"--shapes=x:{batch}x{row}",
                    f"--json={folder / f'{name}-{batch}.json'}",
                ]
            ),
            flush=True,
        )


def _said(words):
    """Run a command of the toolkit. Returns: it, and what it said."""
    code, said = _models.tftrt(words)
    return f"$ tftrt {' '.join(map(str, words))}\n{said}\n" + (f"ended with {code}\n" if code else "")


if __name__ == "__main__":
    main()
