"""The known messages, a file for each topic. A new one is one entry in its topic's file, and a line of a real log in tests/log_lines.py."""

from tftrt_tools.base.logs.known import (
    builds,
    calibration,
    conversion,
    devices,
    expected,
    fallback,
    general,
    loading,
    memory,
    models,
    precision,
    requests,
    speed,
    versions,
)

# The topics in this order. Where messages share words, the one with more fixed words counts.
MESSAGES = (
    *fallback.ALL,
    *builds.ALL,
    *memory.ALL,
    *versions.ALL,
    *loading.ALL,
    *requests.ALL,
    *devices.ALL,
    *calibration.ALL,
    *precision.ALL,
    *conversion.ALL,
    *models.ALL,
    *speed.ALL,
    *expected.ALL,
)
# These count only where none of the others is found.
GENERAL = general.ALL
