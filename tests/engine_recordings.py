"""What engines told of themselves on an H100 (80 GB HBM3, driver 580), by benchmarks.profile_recordings, and the profiles made of it."""

import copy
import functools
import gzip
import json

from tests.conftest import ROOT
from tftrt_tools.studies.profiling import engines

DIGITS, RESNET, ENCODER = "digits_fp16", "resnet50_fp16", "encoder_fp16"


@functools.cache
def _document(name):
    return json.loads(gzip.decompress((ROOT / f"tests/data/engines_{name}.json.gz").read_bytes()))


def recording(name):
    """A Recording of its own, for tests that change it."""
    return engines.Recording.from_dict(copy.deepcopy(_document(name)))


@functools.cache
def profiles(name):
    """The EngineProfiles of a recorded model, profile by profile."""
    found, failed = engines.profiles(recording(name))
    assert not failed
    return found
