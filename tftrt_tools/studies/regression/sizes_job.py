"""The worker's side of `sizes`."""

import os

from tftrt_tools.fleet.task import Given
from tftrt_tools.studies.regression import regress
from tftrt_tools.studies.regression.sizes import Asked, Compared


def job(given: Given) -> Compared:
    """Compare at one batch size. Raises: UsageError, TftrtError where nothing could be measured."""
    asked = Asked.from_dict(given.request)
    if asked.folder:
        os.chdir(asked.folder)
    return Compared.of(regress.regress(asked.whole()))
