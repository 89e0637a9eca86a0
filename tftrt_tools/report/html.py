"""The verification report: one HTML file that needs nothing else."""

from tftrt_tools import whole_file
from tftrt_tools.report import plots


def write_verification(done, manifest, path, timing=None):
    """Write the report of a verify.Verification.

    Args:
      manifest: the converted model's manifest, or None.
      path: file to write, whole or not at all.
      timing: None, or {"device", "rows": [{"batch", "native_ms", "converted_ms"}]}.
    """
    import jinja2

    templates = jinja2.Environment(loader=jinja2.PackageLoader("tftrt_tools.report", "templates"), autoescape=True,
                                   trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    signatures = (manifest or {}).get("signatures", [])
    page = templates.get_template("verification.html").render(
        done=done, manifest=manifest, signatures=signatures, timing=timing,
        snr=plots.signal_to_noise(done.comparisons, done.bounds), ops=plots.where_ops_run(signatures),
        latency=plots.latency(timing["rows"]) if timing else "", missed={miss.output for miss in done.misses})
    whole_file.write_text(path, page)
