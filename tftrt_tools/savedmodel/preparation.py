"""What was done to a frozen signature before TF-TRT saw it (conversion.prepare). No TensorFlow here."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Grouped:
    """A convolution of several groups. name, type: of the node; groups: how many; written: the type of the node that computes the same,
    "" where there is none; added_bytes: that its filter is larger."""

    name: str
    type: str
    groups: int
    written: str = ""
    added_bytes: int = 0


@dataclasses.dataclass(frozen=True)
class Preparation:
    """opened: names of the calls for XLA that were replaced by what they call; convolutions: Grouped, of the main graph."""

    opened: tuple = ()
    convolutions: tuple = ()

    @property
    def left(self):
        """Names of grouped convolutions that are in the graph as they were."""
        return {one.name for one in self.convolutions if not one.written}

    def to_dict(self):
        return {"opened": list(self.opened), "convolutions": [dataclasses.asdict(one) for one in self.convolutions]}

    @classmethod
    def from_dict(cls, data):
        """From `to_dict`; from None, of an older manifest, an empty one."""
        return cls(tuple(data["opened"]), tuple(Grouped(**one) for one in data["convolutions"])) if data else cls()
