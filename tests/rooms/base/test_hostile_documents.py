"""Documents that are damaged, or of another hand, end in one line: hundreds of changes to each kind of document, and no traceback."""

import copy
import dataclasses
import json
import pathlib
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rooms.models.test_pytorch_programs import MODEL, write
from tests.sources_command import run
from tftrt_tools.base import errors
from tftrt_tools.base.files import documents
from tftrt_tools.base.wire import triton_config
from tftrt_tools.models.inputs import calls
from tftrt_tools.models.kinds.plan import document as plan_document
from tftrt_tools.models.kinds.pytorch import program
from tftrt_tools.models.savedmodel import engine_assets, files, passport
from tftrt_tools.servers.serving.configuration import config_check
from tftrt_tools.servers.serving.smoke import version_on_disk
from tftrt_tools.studies.batching import journal as batching_journal
from tftrt_tools.studies.profiling import stored
from tftrt_tools.studies.regression import baseline
from tftrt_tools.studies.tuning import journal as tuning_journal
from tftrt_tools.tftrt.calibration import file as calibration_file
from tftrt_tools.tftrt.wrapping import added

OTHERS = [
    None,
    True,
    -1,
    1e308,
    2**70,
    "",
    "text",
    [],
    [None],
    [[]],
    {},
    {"a": 1},
    ["x"],
    [{"name": 7}],
    "\ud800",
    {"name": None},
]
TEXTS = [
    "",
    "{",
    "[" * 100_000,
    '{"a":' * 5000,
    "[]",
    "null",
    "7",
    '"x"',
    "{}x",
    "9" * 9999,
    '{"schema_version": "2"}',
    '{"schema_version": {}}',
    "\x00",
    "NaN",
    '{"schema_version": 1e999}',
    '{"a": ' + "[" * 500 + "]" * 500 + "}",
    '{"schema_version": true}',
]


def places(value, here=()):
    """The place of each value, as keys and numbers."""
    yield here
    for key, one in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(one, (*here, key))


def changes(document, count=250, seed=0):
    """The document, `count` times, with one value of another type, or without one."""
    rng, there = random.Random(seed), [one for one in places(document) if one]
    for _ in range(count):
        made = copy.deepcopy(document)
        *way, last = rng.choice(there)
        parent = made
        for one in way:
            parent = parent[one]
        if rng.random() < 0.2:
            del parent[last]
        else:
            parent[last] = copy.deepcopy(rng.choice(OTHERS))
        yield made


def survives(read, texts, path):
    """Nothing but a TftrtError in a line comes out of reading each text. Returns: how many were refused."""
    refused = 0
    for text in texts:
        path.write_text(text, errors="surrogatepass")
        try:
            read()
        except errors.TftrtError as error:
            refused += 1
            assert "\n" not in error.cause and len(error.cause) < 600 and error.mend, error.cause
    return refused


MANIFEST = {
    "schema_version": 1,
    "kind": "conversion",
    "tool": "tftrt-tools 0.1",
    "created": "2026-01-01T00:00:00+00:00",
    "source": "/models/a",
    "gpu": {"name": "x", "compute_capability": "8.0"},
    "versions": {"tensorrt": "8.6.1"},
    "settings": {"precision_mode": "FP16", "signature_keys": []},
    "signatures": [
        {
            "name": "serving_default",
            "twins": ["other"],
            "calls": [{"x": [1, 4]}],
            "engines": [{"name": "TRTEngineOp_0", "ops": {"Relu": 1}}],
            "unbuilt": [{"name": "TRTEngineOp_1", "reason": "no", "mend": ""}],
            "flops": {"inside": 1, "total": 2, "unknown": [], "loops": [], "rounds": []},
            "inputs": [{"name": "x", "dtype": "float32", "shape": [None, 4]}],
            "left_out": [],
            "native_ops": {},
            "findings": [],
        }
    ],
    "wrapped": {"signatures": ["bytes"], "default_was": ""},
}
PUBLISHED = {
    "schema_version": 1,
    "model": "m",
    "warmup": {"count": 1, "records": [{"signature": "serving_default", "shapes": {"x": [1, 4]}}]},
}
VERIFIED = {
    "schema_version": 1,
    "passed": True,
    "problems": [],
    "sources": {"serving_default": "random"},
    "twins": {"a": ["b"]},
    "converted_digest": "sha256:0",
}


@pytest.fixture
def model(tmp_path):
    """A folder that has a passport, and nothing else."""
    (tmp_path / "model" / files.PASSPORT).mkdir(parents=True)
    return tmp_path / "model"


def test_a_passport_is_read_or_damaged(model):
    asset = engine_assets.EngineAsset(**{one.name: None for one in dataclasses.fields(engine_assets.EngineAsset)})

    def read():
        manifest = passport.read(model, passport.MANIFEST)
        (
            passport.signatures(manifest),
            passport.added_signatures(manifest),
            passport.left_native(manifest),
            calls.built_for(manifest),
        )
        engine_assets.origin(asset, manifest), version_on_disk.declared_shapes(model)

    path = passport.folder(model) / passport.MANIFEST
    path.write_text(json.dumps(MANIFEST))
    read()
    assert survives(read, [*TEXTS, *map(json.dumps, changes(MANIFEST, 400))], path) > 100
    path.unlink()
    path = passport.folder(model) / passport.PUBLISH
    assert survives(read, [*TEXTS, *map(json.dumps, changes(PUBLISHED))], path) > 50
    path.unlink()
    assert (
        survives(
            lambda: passport.read(model, passport.VERIFY),
            [*TEXTS, *map(json.dumps, changes(VERIFIED))],
            passport.folder(model) / passport.VERIFY,
        )
        > 50
    )


@pytest.mark.parametrize(
    ("document", "cause"),
    [
        ({"schema_version": "2"}, "schema_version is no whole number"),
        ({"signatures": 7}, "signatures is no list"),
        ({"signatures": [None]}, r"signatures\[0\] is null"),
        ({"signatures": [{}]}, "it has no 'name'"),
        ({"signatures": [{"name": "a", "calls": [{"x": ["1"]}]}]}, r"calls\[0\].x\[0\] is no whole number"),
        ({"gpu": 1}, "gpu is no object"),
        ({"schema_version": 99}, "newer tftrt-tools"),
    ],
)
def test_what_is_wrong_with_a_passport_is_told_with_its_place(document, cause, model):
    (passport.folder(model) / passport.MANIFEST).write_text(json.dumps(document))
    with pytest.raises(errors.TftrtError, match=cause):
        passport.read(model, passport.MANIFEST)


def test_older_and_newer_documents_stay_readable(model):
    for document in (
        {},
        {"schema_version": None},
        {"wrapped": None, "gpu": None},
        {**MANIFEST, "unknown": {"deep": [1]}},
    ):
        (passport.folder(model) / passport.MANIFEST).write_text(json.dumps(document))
        assert passport.read(model, passport.MANIFEST) == document


def test_a_plan_json_is_read_or_damaged(tmp_path):
    document = {
        "schema_version": 1,
        "kind": "plan",
        "tensorrt": "10.1",
        "gpu": "x",
        "compute_capability": "8.0",
        "bytes": 4,
        "digest": "sha256:0",
        "inputs": [{"name": "x", "dtype": "float32", "shape": [None, 4]}],
        "outputs": [{"name": "y", "dtype": "float32", "shape": [None]}],
        "profiles": [{"x": {"min": [1, 4], "opt": [1, 4], "max": [8, 4]}}],
    }
    (tmp_path / plan_document.PLAN).write_bytes(b"plan")
    texts = [*TEXTS, *map(json.dumps, changes(document))]
    assert survives(lambda: plan_document.read(tmp_path), texts, tmp_path / plan_document.DOCUMENT) > 200


def test_a_program_is_read_or_damaged(tmp_path):
    path = tmp_path / "m.pt2"
    for made in [*TEXTS, *changes(MODEL, 300)]:
        write(path, None, **{"models/model.json": made if isinstance(made, str) else json.dumps(made)})
        try:
            program.overview(str(path)), program.read(str(path))
        except errors.TftrtError as error:
            assert "\n" not in error.cause


@pytest.mark.parametrize(
    "read",
    [
        lambda path: baseline.read(path),
        lambda path: stored._file(str(path)),
        lambda path: calibration_file.read(path),
        lambda path: tuning_journal._read(path),
        lambda path: documents_of_wrapping(path),
        lambda path: batching_journal.Journal(path.parent, {"model": "a"}),
    ],
    ids=["baseline", "profile", "calibration", "trial", "wrapping", "batching"],
)
def test_other_documents_are_read_or_damaged(read, tmp_path):
    recorded = pathlib.Path(__file__).parents[2] / "data/documents_before_records.json"
    known = json.loads(recorded.read_text())
    texts = list(TEXTS)
    for number, document in enumerate(list(known.values() if isinstance(known, dict) else known)[:8]):
        if isinstance(document, dict):
            texts += map(json.dumps, changes(document, 30, number))
    path = tmp_path / batching_journal.NAME
    survives(lambda: read(path), [*texts, *(f"{text}\n{text}\n" for text in texts[:60])], path)


def documents_of_wrapping(path):
    folder = path.parent / files.EXTRAS
    folder.mkdir(exist_ok=True)
    (folder / added.FILE).write_bytes(path.read_bytes())
    added.read(path.parent)


CONFIG = 'model_config_list { config { name: "m" base_path: "/models/m" model_platform: "tensorflow" model_version_policy { specific { versions: 1 } } } }'
DEEP = [
    "model_config_list {" * 3000,
    "{" * 100_000,
    "a <" * 5000 + ">" * 5000,
    "max_batch_size { value: " + "9" * 5000 + " }",
    '"',
    "a: '",
    "#" + "{" * 5000,
    "\x00",
]


@pytest.mark.parametrize("text", DEEP)
def test_a_configuration_of_deep_braces_is_told(text, tmp_path, capsys):
    (tmp_path / "models.config").write_text(text)
    assert run("configure", "--check_files", tmp_path / "models.config") in (
        errors.EXIT_CHECK,
        errors.EXIT_USAGE,
        errors.EXIT_FAILED,
    )
    told = capsys.readouterr()
    assert "models.config" in told.out + told.err and len((told.out + told.err).splitlines()) < 6


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                *"{}<>[]:;,#'\"\\\n \t0a-",
                "name",
                "value",
                "model_config_list",
                "config",
                "max_batch_size",
                '"m"',
                "1e9",
                "\ufeff",
                "\ud7ff",
            ]
        ),
        max_size=40,
    ).map("".join),
    st.integers(0, len(CONFIG)),
    st.integers(0, 20),
)
def test_any_text_of_a_configuration_is_checked(noise, place, cut):
    text = CONFIG[:place] + noise + CONFIG[place + cut :]
    assert isinstance(config_check.check_text("models.config", text, on_disk=False), config_check.Checked)
    try:
        triton_config.parse(text)
    except ValueError as error:
        assert "\n" not in str(error)


@settings(max_examples=300, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(st.sampled_from(["name", "signatures", "calls", "x"]), inner, max_size=4)
        ),
        max_leaves=20,
    )
)
def test_a_shape_refuses_or_takes(values):
    shape = {"name!": str, "signatures": [{"name": float, "calls": {str: [int]}}], "x": bool}
    try:
        documents.check(values, shape)
    except ValueError:
        return
    if values is not None:
        assert isinstance(values["name"], str) and all(isinstance(one, dict) for one in values.get("signatures") or ())


def test_size_and_depth_are_bounded(monkeypatch, tmp_path):
    assert documents.parse("[" * 100 + "]" * 100) and documents.parse('{"a": [1]}', levels=2)
    for text in ("[" * 102 + "]" * 102, "[" * 200_000):
        with pytest.raises(ValueError, match="nested"):
            documents.parse(text)
    monkeypatch.setattr(documents, "MOST_BYTES", 10)
    (tmp_path / "x.json").write_text('{"a": "bcdefgh"}')
    with pytest.raises(ValueError, match="larger than"):
        documents.read(tmp_path / "x.json")


def test_variables_of_a_name_that_counts_nothing(tmp_path, capsys):
    (tmp_path / "variables").mkdir()
    (tmp_path / "saved_model.pb").write_bytes(b"")
    for name in (
        "variables.data-x-of-abc",
        "variables.data-00000-of-",
        "variables.data-0-of-99999999999999999999",
        "variables.data-00000-of-٣",
    ):
        for one in (tmp_path / "variables").iterdir():
            one.unlink()
        (tmp_path / "variables" / name).touch()
        (tmp_path / "variables/variables.index").touch()
        with pytest.raises(errors.TftrtError, match="variables are missing"):
            files.check(tmp_path)


def test_every_document_is_read_in_one_place():
    """json.loads stays where the text is this package's own, or another program's answer that is looked at piece by piece."""
    package = pathlib.Path(documents.__file__).parents[2]
    texts = {str(path.relative_to(package)): path.read_text() for path in package.rglob("*.py")}
    own = {
        "base/files/documents.py",
        "base/process/child.py",
        "servers/load/assignment.py",
        "servers/load/link.py",
        "base/stack/facts.py",
        "base/stack/probe_job.py",
        "studies/profiling/measure.py",
        "studies/batching/journal.py",
        "servers/serving/launch/docker.py",
        "servers/serving/triton/python_model_job.py",
        "servers/serving/local/rest/parse.py",
        "tensorrt/plans/build_job.py",
        "studies/profiling/job/plan_job.py",
    }
    assert {name for name, text in texts.items() if "json.load" in text} <= own
    assert [
        name for name, text in texts.items() if "text_format.Parse(" in text and name != "base/files/documents.py"
    ] == ["models/sources/graph_job.py"]
