"""What `tftrt serve` reads in its server's log: loads that failed, base paths without versions, and the server's last words."""

import pytest

from tests import server_log
from tftrt_tools.base.logs import load_failure
from tftrt_tools.servers.serving import server_flags
from tftrt_tools.servers.serving.launch import ending, log_follower


def follower(**values):
    return log_follower.Follower({**server_flags.DEFAULTS, **values})


def told(lines, **values):
    """Everything a follower says of a log, from its lines up to the moment when nothing more comes."""
    one = follower(**values)
    for line in "\n".join(lines).splitlines():
        one.note(line)
    return [*one.news(), *one.news()]


@pytest.mark.parametrize(
    ("said", "cause", "mend"),
    [
        (
            server_log.NO_KERNEL,
            "CreateTRTResourceHandle has no kernel in this server, because it sees no GPU",
            "--launch=local",
        ),
        (
            server_log.SEVERAL,
            "CreateTRTResourceHandle has no kernel in this server, because it sees no GPU",
            "--launch=local",
        ),
        (server_log.NO_TFTRT, "built without TF-TRT", "--launch=local"),
        (server_log.NO_OP, "this server has no op Sharpen", "a server that is built with it"),
        (server_log.DAMAGED, "DATA_LOSS: Unable to parse", "publish the model again"),
        ("OUT_OF_RANGE: Read less bytes than requested", "Read less bytes", "publish the model again"),
        (server_log.TAGS, "Could not find meta graph", "--saved_model_tags"),
        (
            "INVALID_ARGUMENT: Last entry in allowed_batch_sizes must match max_batch_size; last entry was 8, expected 1000",
            "Last entry in",
            "configure --check",
        ),
        ("RESOURCE_EXHAUSTED: OOM when allocating tensor", "OOM", "more memory"),
        ("INTERNAL: something new", "INTERNAL: something new", ""),
    ],
)
def test_messages_of_a_load_are_read(said, cause, mend):
    found = load_failure.explain(said)
    assert cause in found[0] and "\n" not in found[0] and mend in found[1]


def test_a_failure_is_told_once_however_often_the_server_tries():
    again = "2026-11-23 10:01:00.000000: I tensorflow_serving/util/retrier.cc:33] Retrying of Loading servable: {name: a version: 1} retry: 1"
    first = server_log.load_failure("a", 1, server_log.NO_KERNEL)
    other = server_log.load_failure("b", 2, server_log.NO_OP)
    news = told(
        [first, again, first, other, again, first], max_num_load_retries=1, load_retry_interval_micros=2_500_000
    )
    assert [one.cause.split(":")[0] for one in news] == ["a version 1 did not load", "b version 2 did not load"]
    assert news[0].mend.endswith(
        "; the server tries 1 more time, one each 2.5 s (--max_num_load_retries, --load_retry_interval_micros)"
    )
    assert "tries" not in told([other], max_num_load_retries=0)[0].mend


def test_the_lines_of_a_message_are_awaited():
    one = follower()
    first, *rest = server_log.load_failure("a", 1, server_log.SEVERAL).splitlines()
    one.note(first)
    assert one.news() == []
    for line in rest:
        one.note(line)
    assert one.news() == []
    assert [news.cause for news in one.news()] == [
        "a version 1 did not load: " + load_failure.explain(server_log.NO_KERNEL)[0]
    ]
    assert one.news() == []


@pytest.mark.parametrize(
    "line",
    [
        "2026-11-24 10:00:00.000: E loading {name: m version: 1} failed: NOT_FOUND: no graph",
        server_log.load_failure("m", 1, "NOT_FOUND: no graph"),
    ],
)
def test_both_servers_are_understood(line):
    assert (
        told([line], max_num_load_retries=0)[0].text == "tftrt: warning: m version 1 did not load: NOT_FOUND: no graph"
    )


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        (
            server_log.error(
                "tensorflow_serving/sources/storage_path/file_system_storage_path_source.cc:353] FileSystemStoragePathSource encountered a "
                "filesystem access error: Could not find base path gs://a/b for servable b with error NOT_FOUND: no bucket"
            ),
            "the server finds no versions, of no model: Could not find base path gs://a/b for servable b with error NOT_FOUND: no bucket",
        ),
        (
            server_log.error(
                "tensorflow_serving/sources/storage_path/file_system_storage_path_source.cc:268] No versions of servable b found under base path "
                "gs://a/b. Did you forget to name your leaf directory as a number (eg. '/1/')?"
            ),
            "b has no version under gs://a/b",
        ),
        (
            "2026-11-24 10:00:00.000: E file system access error: Could not find base path /x for servable b with error NOT_FOUND: /x not found",
            "the server finds no versions, of no model: Could not find base path /x for servable b with error NOT_FOUND: /x not found",
        ),
        (
            "2026-11-24 10:00:00.000: W no versions of b under base path /x: a version is a directory with a number for a name, like /x/1",
            "b has no version under /x",
        ),
    ],
)
def test_base_paths_without_versions_are_told_once(line, cause):
    assert [one.cause for one in told([line] * 3)] == [cause]


def test_other_lines_are_no_news():
    assert (
        told(
            [
                "2026-11-23 10:00:00.000000: I Successfully loaded servable version {name: a version: 1}",
                "Running gRPC ModelServer at 0.0.0.0:8500 ...",
                "stray text",
            ]
        )
        == []
    )


def test_the_last_words_of_a_server_are_read():
    error = ending.read(
        255, server_log.refused(("a", 1, server_log.NO_KERNEL), ("b", 2, server_log.NO_OP)).splitlines(), ()
    )
    assert (
        error.cause
        == "the server ended by itself with exit code 255: a version 1 did not load: "
        + load_failure.explain(server_log.NO_KERNEL)[0]
    )
    assert error.mend.startswith("serve the original model here")
    error = ending.read(255, [server_log.refused(("b", 2, "NOT_FOUND: no graph"))], ())
    assert error.cause.endswith("b version 2 did not load: NOT_FOUND: no graph")
    label = (
        "Failed to start server. Error: FAILED_PRECONDITION: Request to assign label to version 7 of model a, which is not currently available for "
        "inference"
    )
    error = ending.read(255, [label], ())
    assert "a label names version 7 of a, which is not loaded yet" in error.cause
    assert error.mend.startswith("add --allow_version_labels_for_unavailable_models")
