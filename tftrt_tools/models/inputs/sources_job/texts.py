"""Text files for a model whose only input takes strings. No TensorFlow here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy.typing as npt

from tftrt_tools.models.inputs import text_lines
from tftrt_tools.models.inputs.sources_job import files as whole_files
from tftrt_tools.models.inputs.sources_job import request as requests
from tftrt_tools.models.inputs.sources_job.batching import Tally
from tftrt_tools.models.savedmodel.shapes import InputSpec


def source(request: requests.Request) -> Callable[[Tally], Iterator[tuple[str, dict[str, npt.NDArray[Any]]]]]:
    """In a single file each line is a row, without its end; with several files each is a row, its bytes as they are."""
    types = {spec.dtype for spec in request.specs}
    if types == {"string"}:
        mend = "give a .csv with a column for each input, its name in the first line"
    elif types <= {"int32", "int64"}:
        mend = "text is not tokenized here: give the tokens' ids as arrays in an .npz, or by module:function"
    else:
        mend = ""
    spec = requests.needs_text(request, "text", mend)
    if len(request.files) > 1:
        return whole_files.source(request)
    return lambda tally: _lines(request.files[0], spec)


def _lines(path: str, spec: InputSpec) -> Iterator[tuple[str, dict[str, npt.NDArray[Any]]]]:
    for number, line in enumerate(text_lines.read(path), 1):
        yield f"line {number} of {path}", {spec.name: whole_files.row(line, spec)}
