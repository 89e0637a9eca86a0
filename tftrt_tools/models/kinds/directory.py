"""The members that all kinds of models share that are directories with a passport."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tftrt_tools.models.savedmodel import files, passport


class Directory:
    """Members of model.Kind."""

    def digest(self, path: str) -> str:
        """As model.Kind.digest; of a file that is exported, its own."""
        return files.digest(path)

    def document(self, path: str, name: str) -> dict[str, Any] | None:
        """The document `name` of the passport, as model.Kind.document."""
        found: dict[str, Any] | None = passport.read(path, name)
        return found

    def keep(self, path: str, name: str, document: Mapping[str, Any]) -> bool:
        """Keep a document in the passport, as model.Kind.keep."""
        passport.write(path, name, dict(document))
        return True
