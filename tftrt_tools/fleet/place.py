"""Where tasks run: what `--on` says."""

from __future__ import annotations

import dataclasses
import re
from typing import Literal

from tftrt_tools.base import errors

Kind = Literal["local", "cluster"]
# That a task waits for a machine which no cluster has yet.
SECONDS = 60.0
OF_A_CLUSTER = "ray://HEAD:10001 of a cluster"
FORMS = f"local, or {OF_A_CLUSTER}"
_HEAD = re.compile(r"ray://(\[[0-9a-fA-F:]+\]|[^\s:/@]+):(\d{1,5})")


@dataclasses.dataclass(frozen=True)
class Place:
    """local: this machine, for the time of the command. cluster: the head at `address`, "ray://host:port"."""

    kind: Kind
    address: str = ""

    def text(self) -> str:
        """For messages."""
        return self.address or "this machine"

    def host_and_port(self) -> tuple[str, int]:
        """Of a cluster's head."""
        found = _HEAD.fullmatch(self.address)
        assert found
        return found[1].strip("[]"), int(found[2])


def parse(text: str, forms: str = FORMS) -> Place | None:
    """The Place of a text of `--on`; None for "", which is no fleet. Args: forms: what to give, for messages. Raises: UsageError."""
    if not text:
        return None
    if text == "local":
        return Place("local")
    found = _HEAD.fullmatch(text)
    if not found or not 0 < int(found[2]) < 65536:
        raise errors.UsageError(f"--on={text} is no place", f"give {forms}")
    return Place("cluster", text)
