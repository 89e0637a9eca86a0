"""MetaGraphs of converted and stripped models."""

from tftrt_tools.models.savedmodel.job import protos
from tftrt_tools.tftrt.conversion import build_job, convert_job
from tftrt_tools.tftrt.conversion.settings import Settings


def converted(source, output, **settings):
    """Convert in this process. Returns: `output`."""
    output.mkdir()
    settings = Settings(minimum_segment_size=1, **settings).to_dict()
    convert_job.job(
        {
            "source": str(source),
            "output": str(output),
            "settings": settings,
            "int8": {"options": None, "given": None},
            "cache": None,
        }
    )
    return output


def stripped(source, output):
    """What `tftrt build --strip` does, in this process. Returns: `output`."""
    output.mkdir()
    request = {
        "source": str(source),
        "output": str(output),
        "settings": Settings().to_dict(),
        "signatures": [],
        "calibration": None,
    }
    build_job.job({**request, "cache": None})
    return output


def meta(path):
    return protos.meta_graph(protos.read(path))
