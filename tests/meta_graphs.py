"""MetaGraphs of converted and stripped models."""

from tftrt_tools.models.savedmodel.job import protos
from tftrt_tools.tftrt.conversion import build_job, convert_job
from tftrt_tools.tftrt.conversion.build import BuildRequest
from tftrt_tools.tftrt.conversion.converting import ConvertRequest
from tftrt_tools.tftrt.conversion.settings import Settings


def converted(source, output, **settings):
    """Convert in this process. Returns: `output`."""
    output.mkdir()
    settings = Settings(minimum_segment_size=1, **settings)
    convert_job.job(ConvertRequest(source=str(source), output=str(output), settings=settings))
    return output


def stripped(source, output):
    """What `tftrt build --strip` does, in this process. Returns: `output`."""
    output.mkdir()
    build_job.job(BuildRequest(source=str(source), output=str(output), settings=Settings()))
    return output


def meta(path):
    return protos.meta_graph(protos.read(path))
