"""Arrays between processes keep name, dtype, shape and bits; bfloat16 too, which NumPy's own file form forgets."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.command_here import run_program
from tests.conftest import ROOT
from tftrt_tools.base import errors
from tftrt_tools.models.execution import arrays, npz
from tftrt_tools.models.savedmodel.shapes import InputSpec

NAMES = st.text(
    st.characters(codec="ascii", exclude_characters="\\:\0", exclude_categories=["Cc"]), min_size=1, max_size=12
).filter(lambda name: not name.startswith("/") and ".." not in name)
DTYPES = st.sampled_from(
    ["float16", "float32", "float64", "int8", "int64", "uint16", "bool", "complex64", ml_dtypes.bfloat16]
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(
    st.dictionaries(
        NAMES,
        DTYPES.flatmap(
            lambda dtype: hnp.array_shapes(min_dims=0, max_side=4).flatmap(
                lambda shape: hnp.arrays(np.uint8, (*shape, np.dtype(dtype).itemsize), elements=st.integers(0, 1)).map(
                    lambda bits: bits.view(dtype).reshape(shape)
                )
            )
        ),
        max_size=3,
    )
)
def test_what_is_saved_is_loaded(tmp_path, given_arrays):
    npz.save(tmp_path / "x.npz", given_arrays)
    found = npz.load(tmp_path / "x.npz")
    assert list(found) == list(given_arrays)
    for name, array in given_arrays.items():
        assert (found[name].dtype, found[name].shape, found[name].tobytes()) == (
            array.dtype,
            array.shape,
            array.tobytes(),
        )


def test_names_of_parameters_and_strings():
    import io

    file = io.BytesIO()
    npz.save(file, {"file": np.ones(2), "args": np.array([b"a", b""], object)})
    found = npz.load(io.BytesIO(file.getvalue()))
    assert found["file"].tolist() == [1, 1] and found["args"].tolist() == [b"a", b""]


@pytest.mark.parametrize(
    "values", [[b"a", b"", b"\0b\0"], ["é", "", "\ud800"], [b"a", "a"], [], [[b"a", b"bc"], ["d", b""]], b"alone"]
)
def test_strings_are_written_without_pickles(values, tmp_path):
    array = np.array(values, object)
    npz.save(tmp_path / "x.npz", {"s": array, "n": np.ones(2)})
    found = npz.load(tmp_path / "x.npz")
    assert list(found) == ["s", "n"] and found["s"].dtype == object and found["s"].shape == array.shape
    assert found["s"].tolist() == array.tolist() and list(map(type, found["s"].flat)) == list(map(type, array.flat))
    with np.load(tmp_path / "x.npz", allow_pickle=False) as raw:
        assert all(raw[name].dtype != object for name in raw.files)


class Hostile:
    """Its pickle runs code where it is loaded."""

    def __reduce__(self):
        return pytest.fail, ("a pickle was loaded",)


def test_a_pickle_is_not_loaded(tmp_path):
    np.savez(tmp_path / "x.npz", s=np.array([Hostile()], object))
    with pytest.raises(ValueError, match="allow_pickle"):
        npz.load(tmp_path / "x.npz")
    for values in ([1], [None], [np.ones(2), b"a"]):
        array = np.empty(len(values), object)
        array[:] = values
        with pytest.raises(errors.UsageError, match="Python objects"):
            npz.save(tmp_path / "y.npz", {"s": array})


def test_no_module_loads_or_writes_pickles():
    found = [
        f"{path.name}: {line.strip()}"
        for path in (ROOT / "tftrt_tools").rglob("*.py")
        for line in path.read_text().splitlines()
        if "allow_pickle=True" in line
        or line.strip().startswith(("import pickle", "from pickle import"))
        and "pickletools" not in line
    ]
    assert not found


def test_the_users_bfloat16_data_is_what_the_signature_takes(tmp_path):
    spec, values = InputSpec("x", "bfloat16", (None,)), np.array([1.0, 2.5, -3.0])
    for array in (values, values.astype(np.float32), values.astype(ml_dtypes.bfloat16)):
        np.savez(tmp_path / "x.npz", x=array)
        read = arrays.prepared(arrays.load(tmp_path / "x.npz")["x"], spec)
        assert read.dtype == ml_dtypes.bfloat16 and read.astype(float).tolist() == values.tolist()
    for wrong in (np.array([1, 2]), np.array([np.nan]), np.array([1e39]), np.array(["a"])):
        with pytest.raises(errors.UsageError):
            arrays.prepared(wrong, spec)


MODEL = """
import sys
import tensorflow as tf


class Model(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec((None, 4), tf.bfloat16, name="file")])
    def serve(self, file):
        wide = tf.cast(file, tf.float32)
        return {"half": tf.cast(tf.nn.relu(tf.matmul(wide, tf.ones((4, 3))) + 1.0), tf.bfloat16)}


model = Model()
tf.saved_model.save(model, sys.argv[1], signatures={"serving_default": model.serve})
"""


@pytest.mark.slow
def test_a_model_that_takes_and_gives_bfloat16_is_verified(tftrt, tmp_path):
    run_program(MODEL, tmp_path / "model")
    made = tftrt("convert", f"--model={tmp_path / 'model'}", f"--output={tmp_path / 'out'}")
    assert made.returncode == 0, made.stderr
    done = tftrt("verify", tmp_path / "model", tmp_path / "out")
    assert done.returncode == 0 and "bfloat16" in done.stdout, done.stdout + done.stderr


def test_an_archive_that_unpacks_to_far_more_than_it_holds_is_refused(tmp_path, monkeypatch):
    from tftrt_tools.base import errors
    from tftrt_tools.base.files import archives
    from tftrt_tools.models.execution import arrays

    np.savez_compressed(tmp_path / "zeros.npz", x=np.zeros((5_000_000,), np.float32))
    assert arrays.load(tmp_path / "zeros.npz")["x"].size == 5_000_000
    monkeypatch.setattr(archives, "_UNPACKED_BYTES", 1 << 20)
    with pytest.raises(errors.UsageError, match="would unpack to"):
        arrays.load(tmp_path / "zeros.npz")
