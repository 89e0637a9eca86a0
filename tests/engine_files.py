"""Files of engines in a model, and the head that TensorRT writes."""

import pytest

from tftrt_tools.models.savedmodel import engine_assets, passport
from tftrt_tools.models.savedmodel.inspection import Inspection
from tftrt_tools.tftrt.conversion.settings import Settings

# The first bytes of engines that TensorRT 8.5.3.1 built on H200s. Only their length differs within a run; one had a byte more.
START = "7074727400000000e800000000000000{}0000000000028001000802800100050280010003028001000112800100"
END = "0780010009000000078001000000000007800100 60361e0007800100e8d73000078001008017000008800100".replace(" ", "")
HEADS = [
    bytes.fromhex(START.format(size) + between + END)
    for size, between in (
        ("9dae1b", "100b800100"),
        ("7fdc1a", "10800100"),
        ("6a5d07", "10800100"),
        ("ba5707", "10800100"),
    )
]
HEAD = HEADS[1]
# Of an engine that TensorRT 8.6.0.12 built on an H200: two more headers in front, and one more value.
HEAD_8_6 = bytes.fromhex(
    "66747274000000000100000000000000cc760900000000000806000c000000004e474e450000000038000000000000008a76090000000000"
    "7074727400000000ec00000000000000727609000000000002800100080280010006028001000002800100"
    "0ce5800100078001000000000012800100108001000780010009000000078001000000000007800100"
    "60361e0007800100e8d73000"
)


def engine_file(path, *shapes, size=1000, engine=None):
    """Write an engine file as TF-TRT does, with an `engine` (or `size` bytes) for each of `shapes` (of the only input)."""
    import tensorflow as tf

    with tf.io.TFRecordWriter(str(path)) as writer:
        for shape in shapes:
            record = engine_assets._message_class()(serialized_engine=b"e" * size if engine is None else engine)
            made = record.input_shapes.add()
            for size_of in shape:
                made.dim.add(size=size_of)
            writer.write(record.SerializeToString())
    return path


def look(path, **settings):
    """The Inspection of a converted model."""
    from tftrt_tools.tftrt.conversion import inspect_job
    from tftrt_tools.tftrt.conversion.inspecting import InspectRequest

    seen = inspect_job.job(InspectRequest(model=str(path), settings=Settings(**settings))).inspection
    return Inspection.from_dict(seen.to_dict())


@pytest.fixture(scope="module")
def built_once(converted, tmp_path_factory):
    """A model that carries two engines and loads them, with a manifest that says so: all that a GPU would have left."""
    import tensorflow as tf

    from tftrt_tools.base import tf_private

    source, folder = converted("digits_cnn", "--precision=FP16"), tmp_path_factory.mktemp("built")
    (engine,) = look(source).engines
    file = engine_file(folder / (engine_assets.PREFIX + engine.name), (1, 8, 8, 1), (8, 8, 8, 1))
    loaded = tf.saved_model.load(str(source))
    loaded.trt_engine_resources = {engine.name: tf_private.engine_resource(engine.name, file, 2)}
    tf.saved_model.save(loaded, str(folder / "m"), signatures=dict(loaded.signatures))
    manifest = passport.read(source, passport.MANIFEST)
    manifest["signatures"][0]["built"] = [
        {"name": engine.name, "shapes": [[batch, 8, 8, 1]], "bytes": 1000} for batch in (1, 8)
    ]
    manifest["gpu"] = {"name": "A GPU", "compute_capability": "9.0"}
    passport.write(folder / "m", passport.MANIFEST, manifest)
    return folder / "m", engine.name
