"""Base paths in the file system and the versions found there."""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tftrt_tools.servers.serving.local.policies import Policy

if TYPE_CHECKING:
    from tftrt_tools.base.wire import config_types


_LOG = logging.getLogger("tftrt.serving")


class PollError(Exception):
    """A base path that cannot be read."""


@dataclasses.dataclass(frozen=True)
class Source:
    """One model's base path. name, base_path: str. policy: Policy."""

    name: str
    base_path: str
    policy: Policy = Policy()

    @classmethod
    def of(cls, config: config_types.ModelConfig) -> Source:
        """Make the Source of a ModelConfig."""
        return cls(config.name, config.base_path, Policy.of(config.model_version_policy))

    def poll(self) -> dict[int, str]:
        """The wanted versions. Returns: {version: path}, empty with a warning where none is found. Raises: PollError."""
        if not os.path.exists(self.base_path):
            # An empty base path is another case: storage that is missing for a moment must not unload the model.
            raise PollError(
                f"Could not find base path {self.base_path} for servable {self.name} with error NOT_FOUND: "
                f"{self.base_path} not found"
            )
        try:
            children = os.listdir(self.base_path)
        except OSError as error:
            raise PollError(f"cannot list base path {self.base_path} of {self.name}: {error.strerror}") from None
        chosen = self.policy.choose(self.name, children)
        if not chosen:
            _LOG.warning(
                "no versions of %s under base path %s: a version is a directory with a number for a name, like %s",
                self.name,
                self.base_path,
                os.path.join(self.base_path, "1"),
            )
        return {number: os.path.join(self.base_path, child) for number, child in chosen.items()}


def poll(sources: Iterable[Source]) -> dict[str, dict[int, str]]:
    """Poll all sources, in their order. Returns: {name: {version: path}}. Raises: PollError at the first that cannot be read."""
    return {source.name: source.poll() for source in sources}
