"""Environment variables of this process."""

import contextlib
import os


@contextlib.contextmanager
def variables(values):
    """Set {name: text} while the context lasts; afterwards each is as it was before."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, text in before.items():
            if text is None:
                del os.environ[name]
            else:
                os.environ[name] = text
