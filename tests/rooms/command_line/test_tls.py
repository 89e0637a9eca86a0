"""Each command that asks a server, through TLS with a client's certificate; and two versions of one model, under their labels."""

import importlib
import json
import shutil

import pytest

from tests.conformance.launch import LocalServer
from tests.tls import pems, ssl_config  # noqa: F401
from tftrt_tools.base import errors
from tftrt_tools.command_line.commands import _flags

QUICK = ("--metrics=p50", "--rounds=12", "--max_rounds=12", "--requests=16", "--distinct=4")


@pytest.fixture(scope="module")
def base(zoo_model, tmp_path_factory):
    """A folder with the model digits, versions 1 and 2, and its models.config with labels."""
    folder = tmp_path_factory.mktemp("tls")
    for version in ("1", "2"):
        shutil.copytree(zoo_model("digits_cnn"), folder / "digits" / version)
    (folder / "models.config").write_text(
        f'model_config_list {{ config {{ name: "digits" base_path: "{folder / "digits"}" model_platform: "tensorflow" '
        "model_version_policy { specific { versions: 1 versions: 2 } } "
        'version_labels { key: "stable" value: 1 } version_labels { key: "canary" value: 2 } } }\n'
    )
    return folder


@pytest.fixture(scope="module")
def address(base, pems):  # noqa: F811
    flags = [
        f"--model_config_file={base / 'models.config'}",
        "--allow_version_labels_for_unavailable_models",
        ssl_config(base / "ssl.config", pems, "localhost", True),
    ]
    with LocalServer(flags, base / "log") as server:
        yield server.grpc_address


@pytest.fixture(scope="module")
def trust(pems):  # noqa: F811
    return f"--tls_root={pems['root'][0]}", f"--tls_certificate={pems['client'][0]}", f"--tls_key={pems['client'][1]}"


def run(command, *arguments):
    module = importlib.import_module(f"tftrt_tools.command_line.commands.{command}")
    values, positional = _flags.parse(command, module, [str(one) for one in arguments])
    return module.run(values, positional)


@pytest.mark.parametrize(
    "command, arguments",
    [
        ("versions", ["--model_name=digits"]),
        ("smoke", ["--model_name=digits"]),
        ("bench", ["--model_name=digits", "--duration_seconds=0.2"]),
        (
            "promote",
            [
                "--model_name=digits",
                "--version_label=canary",
                "--model_version=2",
                "--model_config_file={base}/models.config",
            ],
        ),
        ("rollback", ["--model_name=digits", "--model_config_file={base}/models.config"]),
        ("regress", ["--native=digits", "--candidate=digits", "--candidate_version=1"]),
    ],
)
def test_without_tls_a_server_that_asks_for_it_is_recognised(command, arguments, address, base):
    where = [f"--address={address}"] if command == "regress" else [address]
    with pytest.raises(errors.TftrtError, match=f"{address} closes the connection at once") as told:
        run(command, *where, *(one.format(base=base) for one in arguments))
    assert "--tls" in told.value.mend


def test_versions_labels_and_their_moves(address, base, trust, tmp_path):
    asked = ("--model_name=digits", f"--model_config_file={base / 'models.config'}", *trust)
    assert run("versions", address, *asked, f"--json={tmp_path / 'v.json'}") == 0
    (model,) = json.loads((tmp_path / "v.json").read_text())["models"]
    assert model["labels"] == {"stable": 1, "canary": 2}
    assert run("promote", address, *asked, "--version_label=canary", "--model_version=1") == 0
    with pytest.raises(errors.UsageError, match="both are version 1 of 'digits'"):
        run(
            "regress",
            f"--address={address}",
            "--native=digits",
            "--candidate=digits",
            "--candidate_label=canary",
            "--native_label=stable",
            *trust,
            *QUICK,
        )
    assert run("rollback", address, *asked) == 0
    assert run("versions", address, *asked, f"--json={tmp_path / 'v.json'}") == 0
    assert json.loads((tmp_path / "v.json").read_text())["models"][0]["labels"] == {"stable": 1, "canary": 2}


def test_smoke_and_bench(address, trust, zoo_model, tmp_path):
    assert (
        run(
            "smoke",
            address,
            "--model_name=digits",
            "--version_label=stable",
            f"--original={zoo_model('digits_cnn')}",
            *trust,
        )
        == 0
    )
    assert (
        run(
            "bench",
            address,
            "--model_name=digits",
            "--duration_seconds=0.3",
            "--warmup_seconds=0.5",
            "--processes=1",
            *trust,
        )
        == 0
    )


def test_the_canary_is_held_against_the_stable_version(address, trust, zoo_model, tmp_path):
    code = run(
        "regress",
        f"--address={address}",
        "--native=digits",
        "--candidate=digits",
        "--native_label=stable",
        "--candidate_version=2",
        *trust,
        *QUICK,
        "--no_engine_fallback",
        f"--json={tmp_path / 'r.json'}",
        f"--candidate_dir={zoo_model('digits_cnn')}",
    )
    document = json.loads((tmp_path / "r.json").read_text())
    assert (document["native"]["version"], document["candidate"]["version"]) == (1, 2) and document["failed"] == {
        "native": 0,
        "candidate": 0,
    }
    assert document["answers"]["problems"] == [] and document["verdict"]["judgements"][0]["verdict"] in (
        "same",
        "cannot tell",
    )
    # The model is not converted: no engine can have run, and smoke, which was asked through TLS as well, knows that.
    assert code == errors.EXIT_CHECK and document["engines"]["answer"] == "no"


@pytest.mark.parametrize(
    "flag, said", [("--tls_root=/no/such.pem", "/no/such.pem"), ("--tls_certificate={}", "needs its key")]
)
def test_files_that_are_no_use_are_named(flag, said, address, pems):  # noqa: F811
    for command, arguments in (
        ("versions", (address, "--model_name=digits")),
        ("regress", (f"--address={address}", "--native=digits", "--candidate=other")),
    ):
        with pytest.raises(errors.UsageError, match=said):
            run(command, *arguments, flag.format(pems["client"][0]))
