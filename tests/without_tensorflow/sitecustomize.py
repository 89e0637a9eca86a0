"""In a Python that starts with this folder on its path, the packages of the extra `tftrt` cannot be found, as if they were not installed;
or those alone that TFTRT_TEST_HIDDEN names."""

import os
from importlib.machinery import PathFinder

_EXTRA = frozenset(
    os.environ.get("TFTRT_TEST_HIDDEN", "tensorflow tensorflow_serving keras tensorrt h5py aiohttp rapidjson").split()
)
_find_spec, _find_distributions = PathFinder.find_spec, PathFinder.find_distributions


def _find_others(name, path=None, target=None):
    return None if name.partition(".")[0] in _EXTRA else _find_spec(name, path, target)


def _find_other_distributions(context=None):
    return iter(()) if context is not None and context.name in _EXTRA else _find_distributions(*filter(None, [context]))


PathFinder.find_spec, PathFinder.find_distributions = (
    staticmethod(_find_others),
    staticmethod(_find_other_distributions),
)
