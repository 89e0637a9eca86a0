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

    @property
    def reasons(self):
        """Sentences for people: what was done, and why."""
        said = []
        if self.opened:
            said.append(f"{_counted(self.opened, 'call')} for XLA (jit_compile=True) opened: TF-TRT looks into none")
        depthwise = [one for one in self.convolutions if one.written == "DepthwiseConv2dNative"]
        if depthwise:
            said.append(f"{_counted(depthwise, 'grouped convolution')} written as depthwise: TF-TRT knows no other groups")
        dense = [one for one in self.convolutions if one.written == "Conv2D"]
        if dense:
            added = sum(one.added_bytes for one in dense) / 1e6
            said.append(f"{_counted(dense, 'grouped convolution')} written with zeros between the groups, {added:.3g} MB more of weights: "
                        "TF-TRT knows no groups")
        return tuple(said)

    def to_dict(self):
        return {"opened": list(self.opened), "convolutions": [dataclasses.asdict(one) for one in self.convolutions]}

    @classmethod
    def from_dict(cls, data):
        """From `to_dict`; from None, of an older manifest, an empty one."""
        return cls(tuple(data["opened"]), tuple(Grouped(**one) for one in data["convolutions"])) if data else cls()


def _counted(things, noun):
    return f"{len(things)} {noun}{'' if len(things) == 1 else 's'}"
