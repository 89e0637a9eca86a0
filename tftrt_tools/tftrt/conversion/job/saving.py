"""Saves a model with its converted signatures, and puts back what TensorFlow's save drops."""

from __future__ import annotations

import errno
import os
import pathlib
import shutil
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tftrt_tools.base import errors, tf_private
from tftrt_tools.models.savedmodel.job import declarations, detach, fidelity, loading, protos

if TYPE_CHECKING:
    from tftrt_tools.models.savedmodel.job.loading import Model


def save(
    model: Model,
    functions: Mapping[str, Any],
    resources: Mapping[str, Any],
    source: str | os.PathLike[str],
    output: pathlib.Path,
) -> None:
    """Save a loaded model.

    Args: model: loading.Model. functions: {signature: converted ConcreteFunction}; the others stay as they were. resources: {engine name:
    trackable}. source: the model's directory, whose extras (warm-up requests and the like) are kept. output: empty directory.

    Raises: TftrtError; also where something of the source is not in what was saved.
    """
    root = model.root
    if resources or hasattr(root, detach.RESOURCES):
        setattr(root, detach.RESOURCES, resources)
    functions = {name: functions.get(name, root.signatures[name]) for name in root.signatures}
    try:
        with tf_private.names_that_can_be_saved(functions) as renamed:
            tf.saved_model.save(root, str(output), signatures=functions)
        restored = declarations.restore(output, model.declared, renamed)
        loading.copy_extras(source, output)
    except errors.TftrtError:
        raise
    except Exception as error:  # TensorFlow traces signatures anew, and raises whatever that raises
        raise _save_error(error, output) from error
    fidelity.check(source, protos.meta_graph(protos.read(source), model.tags), output, restored)


def _save_error(error: BaseException, output: pathlib.Path) -> errors.TftrtError:
    """The error of a failed save. TensorFlow words a full disk in its own way; for the checkpoint it only reports a failed write."""
    text = loading.first_line(error)
    if shutil.disk_usage(output.parent).free < 1 << 20 or "No space left" in str(error):
        return errors.TftrtError(
            f"no space left on the disk of {output.parent}", "free space there, or choose another output directory"
        )
    if (reason := os.strerror(errno.EFBIG)) in str(error):
        return errors.TftrtError(
            f"a file of the model cannot be written in {output.parent}: {reason}", errors.TOO_LARGE
        )
    return errors.TftrtError(
        f"TensorFlow cannot save the model: {text}", "check the output directory; the log has more (--log_file)"
    )
