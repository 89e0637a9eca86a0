"""An independent client, NVIDIA's perf_analyzer, against the development server."""

import pytest

from benchmarks import _perf_analyzer
from tests.conformance.launch import LocalServer
from tests.conftest import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def perf_analyzer():
    try:
        return _perf_analyzer.fetched(ROOT / "build/perf_analyzer")
    except (_perf_analyzer.Missing, StopIteration) as error:
        pytest.skip(f"perf_analyzer cannot be fetched: {error}")


@pytest.mark.parametrize(
    ("batching", "flags"), [(False, ["--shape", "image:1,8,8,1"]), (True, ["--shape", "image:3,8,8,1"])]
)
def test_perf_analyzer_drives_the_server_without_a_failed_request(batching, flags, perf_analyzer, zoo_model, tmp_path):
    base = tmp_path / "digits"
    base.mkdir()
    (base / "1").symlink_to(zoo_model("digits_cnn"))
    serving = ["--model_name=digits", f"--model_base_path={base}", f"--enable_batching={str(batching).lower()}"]
    with LocalServer(serving, tmp_path / "log.txt") as server:
        # Three windows in a row with answers, of any spread.
        rows = perf_analyzer.run(
            server.grpc_address, "digits", *flags, "--concurrency-range=2:4:2", "-p", "500", "-r", "20", "-s", "999"
        )
    assert sorted(row["Concurrency"] for row in rows) == ["2", "4"]  # perf_analyzer sorts them by latency
    assert all(float(row["Inferences/Second"]) > 0 and float(row["p99 latency"]) > 0 for row in rows), rows
