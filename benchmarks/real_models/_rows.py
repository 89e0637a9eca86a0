"""Data of a model's kind: each function returns rows, made from what packages ship or from a seed."""

import pathlib
import random
import re
import sysconfig

import numpy as np

_RESIDUES = "KRPTNAQVSGILCMHFYWED"
# Atoms C, H, N, O, S, P of a residue in a peptide.
_ATOMS = {
    "A": (3, 5, 1, 1, 0, 0),
    "R": (6, 12, 4, 1, 0, 0),
    "N": (4, 6, 2, 2, 0, 0),
    "D": (4, 5, 1, 3, 0, 0),
    "C": (3, 5, 1, 1, 1, 0),
    "E": (5, 7, 1, 3, 0, 0),
    "Q": (5, 8, 2, 2, 0, 0),
    "G": (2, 3, 1, 1, 0, 0),
    "H": (6, 7, 3, 1, 0, 0),
    "I": (6, 11, 1, 1, 0, 0),
    "L": (6, 11, 1, 1, 0, 0),
    "K": (6, 12, 2, 1, 0, 0),
    "M": (5, 9, 1, 1, 1, 0),
    "F": (9, 9, 1, 1, 0, 0),
    "P": (5, 7, 1, 1, 0, 0),
    "S": (3, 5, 1, 2, 0, 0),
    "T": (4, 7, 1, 2, 0, 0),
    "W": (11, 10, 2, 1, 0, 0),
    "Y": (9, 9, 1, 2, 0, 0),
    "V": (5, 9, 1, 1, 0, 0),
}
_PEPTIDE = 60  # residues that deeplc looks at
_WORDS = (
    "about account action after air art back bank bay blue book box cloud code data day design direct dream drive east easy "
    "energy event farm fast field film fire first food forest free game garden gold good green health home house idea island jet "
    "job key lake land law life light line link list live market media metal mind moon music nation net news north ocean open "
    "orange page paper park path phone photo place plan plus point post press pro radio rain red river road rock room run sale "
    "school sea search share shop sky smart snow sound south space sport star stone store story street studio sun sure team "
    "tech test time top town track trade travel tree valley video view voice wall water wave way web west wild wind wine "
    "wood word work world yard zone"
).split()


def music(rows: int, samples: int, rate: int, seed: int = 0) -> np.ndarray:
    """Chords of four notes with overtones, attack and decay, over a little noise. Returns: float32 [rows, samples] in -1..1."""
    draw = np.random.default_rng(seed)
    time = np.arange(samples) / rate
    made = np.zeros((rows, samples))
    for row in made:
        for _ in range(draw.integers(4, 12)):
            pitch = 440 * 2 ** ((draw.integers(36, 84) - 69) / 12)
            start, fall = draw.uniform(0, time[-1]), draw.uniform(1, 6)
            since = np.maximum(time - start, 0)
            shape = np.exp(-fall * since) * np.minimum(1, since * 100)
            row += (
                draw.uniform(0.2, 1)
                * shape
                * sum(np.sin(2 * np.pi * pitch * part * time) / part**1.5 for part in range(1, 6))
            )
        row += draw.normal(0, 0.003, samples)
    return (made / np.maximum(np.abs(made).max(axis=1, keepdims=True), 1e-6) * 0.9).astype(np.float32)


def mel_music(rows: int, frames: int, bands: int, seed: int = 0) -> np.ndarray:
    """Logarithmic mel spectrograms of `music` as musicnn reads them: 16 kHz, 512 samples a window, 256 between windows.

    The mel scale is that of HTK, 2595 log10(1 + f / 700).
    """
    rate, window, hop = 16000, 512, 256
    waves = music(rows, hop * (frames - 1) + window, rate, seed)
    edges = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + rate / 2 / 700), bands + 2) / 2595) - 1)
    bins = np.fft.rfftfreq(window, 1 / rate)
    rise = (bins - edges[:-2, None]) / np.diff(edges)[:-1, None]
    fall = (edges[2:, None] - bins) / np.diff(edges)[1:, None]
    filters = np.maximum(0, np.minimum(rise, fall)) * (2 / (edges[2:] - edges[:-2]))[:, None]
    slices = np.lib.stride_tricks.sliding_window_view(waves, window, axis=1)[:, ::hop][:, :frames] * np.hanning(window)
    power = np.abs(np.fft.rfft(slices)) ** 2
    return np.log10(10000 * (power @ filters.T) + 1).astype(np.float32)


def sources(rows: int, seed: int = 0) -> np.ndarray:
    """Beginnings of source files that every Python brings: Python, C headers, and texts. Returns: bytes objects [rows]."""
    library = pathlib.Path(sysconfig.get_path("stdlib"))
    found = sorted(library.glob("*.py")) + sorted(pathlib.Path(sysconfig.get_path("include")).rglob("*.h"))
    found += (
        sorted(library.glob("idlelib/*.txt"))
        + sorted(library.glob("*/*.def"))
        + sorted(library.glob("config-*/Makefile"))
    )
    random.Random(seed).shuffle(found)
    texts = [text for path in found if (text := path.read_bytes()[:3000].strip())]
    return np.array([texts[index % len(texts)] for index in range(rows)], object)


def prose(rows: int, length: int, seed: int = 0) -> list[str]:
    """Pieces of English, from the docstrings of Python's library. Returns: `rows` texts of `length` characters."""
    library = pathlib.Path(sysconfig.get_path("stdlib"))
    text = " ".join(
        re.sub(r"\s+", " ", found)
        for path in sorted(library.glob("*.py"))
        for found in re.findall(r'"""(.{200,}?)"""', path.read_text(errors="replace"), re.DOTALL)
    )
    draw = random.Random(seed)
    return [text[start : start + length] for start in (draw.randrange(len(text) - length) for _ in range(rows))]


def domains(rows: int, seed: int = 0) -> tuple[list[str], np.ndarray]:
    """Names that people choose (0) and that malware generates (1), one after the other. Returns: names, classes int64 [rows]."""
    draw = random.Random(seed)
    names = []
    for index in range(rows):
        if index % 2:
            names.append(
                "".join(draw.choice("abcdefghijklmnopqrstuvwxyz0123456789") for _ in range(draw.randint(12, 24)))
            )
        else:
            names.append(draw.choice(["", "the", "my", ""]) + "".join(draw.sample(_WORDS, draw.randint(1, 2))))
        names[-1] += draw.choice([".com", ".net", ".org", ".info"])
    return names, np.arange(rows) % 2


def peptides(rows: int, seed: int = 0) -> list[np.ndarray]:
    """Random tryptic peptides as deeplc encodes them: atoms by residue, by pairs, of the whole with both ends, and residues."""
    draw = random.Random(seed)
    atoms, whole, residues = np.zeros((rows, _PEPTIDE, 6)), np.zeros((rows, 55)), np.zeros((rows, _PEPTIDE, 20))
    for row in range(rows):
        sequence = "".join(draw.choice(_RESIDUES[2:]) for _ in range(draw.randint(6, 28))) + draw.choice("KR")
        parts = np.array([_ATOMS[letter] for letter in sequence])
        atoms[row, : len(sequence)] = parts
        residues[row, range(len(sequence)), [_RESIDUES.index(letter) for letter in sequence]] = 1
        whole[row] = np.concatenate([parts.sum(axis=0), [len(sequence)], parts[:4].ravel(), parts[-4:].ravel()])
    pairs = atoms.reshape(rows, _PEPTIDE // 2, 2, 6).sum(axis=2)
    return [value.astype(np.float32) for value in (atoms, pairs, whole, residues)]


def bases(rows: int, length: int, seed: int = 0) -> np.ndarray:
    """Random DNA in one-hot form. Returns: float32 [rows, length, 4]."""
    return np.eye(4, dtype=np.float32)[np.random.default_rng(seed).integers(0, 4, (rows, length))]


def faces(folder: pathlib.Path, size: int, channels: int = 1) -> np.ndarray:
    """The 200 pieces of scikit-image's `lfw_subset`, the first 100 with a face. Returns: float32 [200, size, size, channels] in 0..1."""
    from PIL import Image

    small = np.load(folder / "skimage" / "data" / "lfw_subset.npy")
    large = [
        np.asarray(Image.fromarray((piece * 255).astype(np.uint8)).resize((size, size), Image.BICUBIC))
        for piece in small
    ]
    return np.repeat(np.stack(large)[..., None], channels, axis=3).astype(np.float32) / 255


def pictures(folder: pathlib.Path) -> list[np.ndarray]:
    """Colour pictures that scikit-image ships. Returns: uint8 [height, width, 3] each."""
    from PIL import Image

    names = (
        "astronaut.png",
        "chelsea.png",
        "coffee.png",
        "rocket.jpg",
        "retina.jpg",
        "motorcycle_left.png",
        "ihc.png",
        "hubble_deep_field.jpg",
    )
    return [np.asarray(Image.open(folder / "skimage" / "data" / name).convert("RGB")) for name in names]


def crops(folder: pathlib.Path, rows: int, size: int, seed: int = 0) -> np.ndarray:
    """Square pieces of `pictures`. Returns: uint8 [rows, size, size, 3]."""
    from PIL import Image

    draw, found = random.Random(seed), pictures(folder)
    made = []
    for index in range(rows):
        picture = found[index % len(found)]
        side = draw.randint(min(size, *picture.shape[:2]), min(picture.shape[:2]))
        top, left = draw.randrange(picture.shape[0] - side + 1), draw.randrange(picture.shape[1] - side + 1)
        piece = Image.fromarray(picture[top : top + side, left : left + side])
        made.append(np.asarray(piece.resize((size, size), Image.BILINEAR)))
    return np.stack(made)
