"""One loaded version of a model."""

from tftrt_tools.serving.local import failure


class Servable:
    """What the services ask.

    Attributes:
      name: of the model. version: number. path: of the version's directory. signatures: {name: SignatureDef}.

    Args: session: session.Session, closed with this.
    """

    def __init__(self, name, version, path, session):
        self.name, self.version, self.path = name, version, str(path)
        self.signatures = session.signatures
        self._session = session

    def run(self, feeds, fetches, timeout_ms=0):
        """Args: feeds: {tensor name: ndarray}; fetches: [tensor name], one may be there twice; timeout_ms: 0 for none.

        Returns: [ndarray]; strings are bytes in object arrays. Raises: Failure.
        """
        try:
            return self._session.run(feeds, fetches, timeout_ms)
        except ValueError as error:  # a dtype that NumPy has not
            raise failure.unimplemented(str(error)) from None

    def close(self):
        """Free the model."""
        self._session.close()
