"""`tftrt tune` on a machine whose two GPUs are counted and are none.

python -m tests.tune_counted MODEL [--flags]
"""

import sys
from unittest import mock

from tests.tune_unbuilt import GPU
from tftrt_tools.base.stack import local_gpus
from tftrt_tools.command_line import cli
from tftrt_tools.studies.tuning import tune

if __name__ == "__main__":
    with (
        mock.patch.object(tune, "_machine", lambda names, original: GPU),
        mock.patch.object(local_gpus, "alike", lambda: ("0", "1")),
    ):
        sys.exit(cli.main(["tune", *sys.argv[1:]]))
