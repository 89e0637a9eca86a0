"""One loaded version of a model."""

import time
import typing
from collections.abc import Mapping, Sequence

import numpy.typing as npt

from tftrt_tools.servers.serving.local import failure

# An array of any dtype; strings are bytes in object arrays.
Array: typing.TypeAlias = npt.NDArray[typing.Any]


class AnyServable(typing.Protocol):
    """The interface that the services use: a Servable, or one with batching around it."""

    @property
    def name(self) -> str:
        """Of the model."""

    @property
    def version(self) -> int:
        """Its number."""

    @property
    def path(self) -> str:
        """The version's directory."""

    @property
    def signatures(self) -> Mapping[str, typing.Any]:
        """{name: SignatureDef}."""

    def run(self, feeds: Mapping[str, Array], fetches: Sequence[str], timeout_ms: int = 0) -> list[Array]:
        """As Servable.run."""

    def close(self) -> None:
        """Free the model."""


class Runs(typing.Protocol):
    """The interface of session.Session, which runs a model."""

    signatures: Mapping[str, typing.Any]

    def run(self, feeds: Mapping[str, Array], fetches: Sequence[str], timeout_ms: int = 0) -> list[Array]:
        """As Session.run."""

    def close(self) -> None:
        """Free the model."""


class Clocked:
    """A servable for one request; `seconds` is how long its graph ran. The request's other time goes into messages and tensors."""

    def __init__(self, wrapped: AnyServable) -> None:
        self.name, self.version, self.path, self.signatures = (
            wrapped.name,
            wrapped.version,
            wrapped.path,
            wrapped.signatures,
        )
        self._run, self.close = wrapped.run, wrapped.close
        self.seconds = 0.0

    def run(self, feeds: Mapping[str, Array], fetches: Sequence[str], timeout_ms: int = 0) -> list[Array]:
        """As Servable.run."""
        start = time.monotonic()
        try:
            return self._run(feeds, fetches, timeout_ms)
        finally:
            self.seconds += time.monotonic() - start


class Servable:
    """A model that runs requests one by one.

    Attributes:
      name: of the model. version: number. path: of the version's directory. signatures: {name: SignatureDef}.

    Args: session: closed with this.
    """

    def __init__(self, name: str, version: int, path: object, session: Runs) -> None:
        self.name, self.version, self.path = name, version, str(path)
        self.signatures = session.signatures
        self._session = session

    def run(self, feeds: Mapping[str, Array], fetches: Sequence[str], timeout_ms: int = 0) -> list[Array]:
        """Args: feeds: by tensor name. fetches: tensor names; one may be there twice. timeout_ms: 0 for none. Raises: Failure."""
        try:
            return self._session.run(feeds, fetches, timeout_ms)
        except ValueError as error:  # a dtype that NumPy does not have
            raise failure.unimplemented(str(error)) from None

    def close(self) -> None:
        """Free the model."""
        self._session.close()
