"""A model as the user named it, with the flags that say how it may be read. No TensorFlow here."""

import dataclasses
import os

from tftrt_tools.base.files import whole_file
from tftrt_tools.models.sources import kinds


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """A path, usable as one: digests and evidence speak of it, `opened.opened` gives the SavedModel behind it."""

    path: str
    # How a Keras file may be loaded: with layers that run code; module:dict of its own classes, or "".
    unsafe: bool = False
    custom_objects: str = ""
    # For a graph without signatures: texts of the tensors that are fed and fetched; () to let the graph decide.
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        whole_file.check_named(self.path)
        object.__setattr__(self, "path", kinds.resolved(os.fspath(self.path)))

    def flag_lines(self) -> list[str]:
        """The flags that differ from their defaults, one a line, for a flag file."""
        unsafe = ["--allow_unsafe_deserialization"] if self.unsafe else []
        texts = {
            "custom_objects": self.custom_objects,
            "inputs": ",".join(self.inputs),
            "outputs": ",".join(self.outputs),
        }
        return unsafe + [f"--{name}={text}" for name, text in texts.items() if text]

    def __fspath__(self) -> str:
        return self.path

    def __str__(self) -> str:
        return self.path


def of(model: "str | os.PathLike[str] | Source") -> Source:
    """The Source of a path; a Source stays as it is."""
    return model if isinstance(model, Source) else Source(path=os.fspath(model))
