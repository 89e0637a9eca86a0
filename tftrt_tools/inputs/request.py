"""What a source is asked for."""

import dataclasses

from tftrt_tools.inputs import find
from tftrt_tools.inputs.options import DataOptions
from tftrt_tools.savedmodel.shapes import InputSpec


@dataclasses.dataclass(frozen=True)
class Request:
    """What a source is asked for. specs: of the signature's inputs; files: paths, () where the source has none; said: the flag that
    named the source, for messages; rows: as many as will be read, 0 for all; label_feature: of TFRecords, that of labels.LABEL, or ""."""

    options: DataOptions
    signature: str
    specs: tuple[InputSpec, ...]
    files: tuple[str, ...]
    said: str = find.FLAG
    rows: int = 0
    label_feature: str = ""
