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
class Dilated:
    """A convolution with dilations that was three nodes. name, type: of the node that computes it; dilations: along height and width;
    padding: "SAME", or "VALID" behind a Pad where it needs one; added_bytes: of zeros in the filter of a depthwise one."""

    name: str
    type: str
    dilations: tuple[int, int]
    padding: str
    added_bytes: int = 0

    @classmethod
    def from_dict(cls, data: dict[str, object]) -> "Dilated":
        return cls(**{**data, "dilations": tuple(data["dilations"])})


@dataclasses.dataclass(frozen=True)
class Preparation:
    """opened: names of the calls for XLA that were replaced by what they call; convolutions: Grouped, of the main graph; dilated: Dilated
    that were written; paddings: names of those that were moved behind the ExpandDims of their convolution; folded: names of FakeQuant
    nodes on constants that are constants now; unquantized: names of FakeQuant nodes on activations that were left out;
    frozen: (input, value) of inputs that have one value for good and are not read; offered: inputs that conditionals alone read."""

    opened: tuple = ()
    convolutions: tuple = ()
    dilated: tuple[Dilated, ...] = ()
    paddings: tuple[str, ...] = ()
    folded: tuple[str, ...] = ()
    unquantized: tuple[str, ...] = ()
    frozen: tuple[tuple[str, bool | int | float], ...] = ()
    offered: tuple[str, ...] = ()

    @property
    def left(self):
        """Names of grouped convolutions that are in the graph as they were."""
        return {one.name for one in self.convolutions if not one.written}

    def to_dict(self):
        return {"opened": list(self.opened), "convolutions": [dataclasses.asdict(one) for one in self.convolutions],
                "dilated": [dataclasses.asdict(one) for one in self.dilated], "paddings": list(self.paddings),
                "folded": list(self.folded), "unquantized": list(self.unquantized),
                "frozen": [list(one) for one in self.frozen], "offered": list(self.offered)}

    @classmethod
    def from_dict(cls, data):
        """From `to_dict`; from None, of an older manifest, an empty one."""
        if not data:
            return cls()
        return cls(tuple(data["opened"]), tuple(Grouped(**one) for one in data["convolutions"]),
                   tuple(map(Dilated.from_dict, data.get("dilated", ()))), tuple(data.get("paddings", ())),
                   tuple(data.get("folded", ())), tuple(data.get("unquantized", ())),
                   tuple(map(tuple, data.get("frozen", ()))), tuple(data.get("offered", ())))
