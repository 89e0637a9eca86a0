"""The same pictures as floats, pixels and files, on one server in turn: what the form of a request costs.

The model's own signature takes float32; `tftrt wrap` adds `uint8` and `encoded`. Without a GPU the model is a light one (average pooling
and a dense layer), because two cores compute nothing larger as fast as pictures arrive; with one it is ResNet-50 in FP16 with engines for
the batch sizes. Rounds: each form comes in each round, in another order every time, so that other load on the machine meets all. Figures
are medians of the rounds; ratios are medians of the rounds' ratios. The server is the development server, or any other that serves the
wrapped model (--server).
"""

import argparse
import contextlib
import dataclasses
import io
import os
import pathlib
import shutil
import statistics
import sys
import tempfile
import time

import numpy as np

from benchmarks import _models, _report
from tests.conformance.launch import LocalServer
from tftrt_tools.servers import client
from tftrt_tools.servers.load import generator, load_plan, payload

NEEDS_GPU = False
MODEL = "pictures"
SIZE = 224
SCALE = "1/255"
FORMS = {"float32": "serving_default", "uint8": "uint8", "encoded": "encoded"}
_DISTINCT = 4  # requests of a form, sent in turn
COLUMNS = [
    ("batch", "batch"),
    ("clients", "clients"),
    ("form", "form"),
    ("kilobytes", "kB a request"),
    ("rate", "requests/s"),
    ("pictures", "pictures/s"),
    ("p50_ms", "p50 ms"),
    ("p99_ms", "p99 ms"),
    ("client_ms", "client CPU ms"),
    ("server_ms", "server CPU ms"),
]
RATIOS = [("batch", "batch"), ("clients", "clients"), ("compared", "requests/s"), ("ratio", "ratio")]


@dataclasses.dataclass(frozen=True)
class Server:
    """What is asked. address: HOST:PORT. process: its process here, None for one that runs elsewhere."""

    address: str
    process: int | None

    def cpu_s(self):
        """Processor seconds since its start, or None."""
        if self.process is None:
            return None
        fields = pathlib.Path(f"/proc/{self.process}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main(argv=None):
    options = _options(argv)
    results = _report.Results(options.json, "wire")
    results.note("options", {key: str(value) for key, value in vars(options).items()})
    options.workdir.mkdir(parents=True, exist_ok=True)
    model = wrapped(options)
    if options.make:
        print(model)
        return 0
    pictures = files(max(options.batch))
    with contextlib.ExitStack() as stack:
        server = _server(stack, model, options)
        for batch in options.batch:
            sent = {form: requests(form, pictures, batch) for form in FORMS}
            for clients in options.clients:
                rounds = [_round(number, server, sent, clients, options.seconds) for number in range(options.rounds)]
                for form in FORMS:
                    results.add(
                        batch=batch,
                        clients=clients,
                        form=form,
                        kilobytes=round(len(sent[form][0]) / 1e3, 1),
                        **summary(batch, [one[form] for one in rounds]),
                    )
                for form in ("uint8", "encoded"):
                    ratio = statistics.median(one[form]["rate"] / one["float32"]["rate"] for one in rounds)
                    results.add(batch=batch, clients=clients, compared=f"{form} / float32", ratio=round(ratio, 2))
    print(_report.table(COLUMNS, [row for row in results.rows if "form" in row]))
    print(_report.table(RATIOS, [row for row in results.rows if "compared" in row]))
    return 0


def _options(argv):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.wire", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--model", choices=("light", "resnet50"), help="by default resnet50 where a GPU is seen, else light"
    )
    parser.add_argument("--batch", type=int, nargs="*", default=[1, 8, 32])
    parser.add_argument("--clients", type=int, nargs="*", default=[1, 4])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument(
        "--server",
        help=f"HOST:PORT of another server that serves the wrapped model as `{MODEL}`; --make says where it is",
    )
    parser.add_argument("--make", action="store_true", help="make the wrapped model, print its folder, and leave")
    parser.add_argument("--workdir", type=pathlib.Path, default=_models.ROOT / "build/bench/wire")
    parser.add_argument("--json", type=pathlib.Path, help="default: WORKDIR/wire.json")
    options = parser.parse_args(argv)
    options.model = options.model or ("resnet50" if _report.gpu() else "light")
    options.workdir = options.workdir.absolute()
    options.json = (options.json or options.workdir / "wire.json").absolute()
    return options


def wrapped(options):
    """The folder of the model with signatures for floats, pixels and files. Engines are made first, so that all forms run the same ones."""
    target = options.workdir / f"{options.model}-wrapped"
    with _models.made(target) as partial:
        if partial:
            _models.command(
                "-m",
                "tftrt_tools",
                "wrap",
                _plain(options),
                f"--output={partial / '1'}",
                f"--image_scale={SCALE}",
                f"--image_size={SIZE}x{SIZE}",
                gpu=False,
            )
    return target


def _plain(options):
    if options.model == "light":
        target = options.workdir / "light"
        with _models.made(target) as partial:
            if partial:
                _models.command("-c", f"from benchmarks import wire; wire.save_light({str(partial)!r})", gpu=False)
        return target
    model = _models.native(options.workdir, SIZE)
    return _models.converted(options.workdir, model, "FP16", options.batch, SIZE)[0] if _report.gpu() else model


def save_light(path):
    """A model whose arithmetic is small beside its input: the mean of tiles of 16 x 16 pixels, and a dense layer of 100 classes."""
    import tensorflow as tf

    weights = tf.Variable(tf.random.stateless_normal(((SIZE // 16) ** 2 * 3, 100), [1, 2]))
    module = tf.Module()
    module.weights = weights

    @tf.function(input_signature=[tf.TensorSpec((None, SIZE, SIZE, 3), name="image")])
    def serve(image):
        tiles = tf.nn.avg_pool2d(image, 16, 16, "VALID")
        return {"logits": tf.matmul(tf.reshape(tiles, (-1, (SIZE // 16) ** 2 * 3)), weights)}

    tf.saved_model.save(module, path, signatures={"serving_default": serve})


def files(count):
    """`count` JPEG files of SIZE x SIZE pixels: waves of several lengths with noise, which JPEG makes about as small as photos."""
    from PIL import Image

    rng = np.random.default_rng(0)
    place = np.linspace(0, 1, SIZE, dtype=np.float32)
    made = []
    for _ in range(count):
        waves = sum(
            np.sin(2 * np.pi * (place[:, None, None] * a + place[None, :, None] * b + c)) / (1 + abs(a) + abs(b)).mean()
            for a, b, c in (rng.uniform(-12, 12, (3, 3)) for _ in range(12))
        )
        pixels = np.clip(128 + 90 * waves + rng.normal(0, 4, (SIZE, SIZE, 3)), 0, 255).astype(np.uint8)
        written = io.BytesIO()
        Image.fromarray(pixels).save(written, "JPEG", quality=90)
        made.append(written.getvalue())
    return made


def requests(form, pictures, batch):
    """A few PredictRequests of one form, as bytes."""
    from PIL import Image

    def pixels(file):
        return np.asarray(Image.open(io.BytesIO(file)))

    made = []
    for number in range(_DISTINCT):
        chosen = [pictures[(number + row) % len(pictures)] for row in range(batch)]
        if form == "encoded":
            array = np.array(chosen, object)
        else:
            array = np.stack([pixels(one) for one in chosen])
            array = array.astype(np.float32) / 255 if form == "float32" else array
        made.append(client.request_bytes(MODEL, {"image": array}, signature=FORMS[form]))
    return tuple(made)


def _server(stack, model, options):
    if options.server:
        return Server(options.server, None)
    folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
    started = stack.enter_context(
        LocalServer([f"--model_name={MODEL}", f"--model_base_path={model}"], folder / "server.txt")
    )
    stack.callback(shutil.copy, folder / "server.txt", options.workdir / "server.txt")
    return Server(started.grpc_address, started.process.pid)


def _round(number, server, sent, clients, seconds):
    """{form: {"rate", "p50_ms", "p99_ms", "client_ms", "server_ms"}}. client_ms, server_ms: processor time of a request."""
    forms = list(FORMS)
    turned = [forms[(place + number) % len(forms)] for place in range(len(forms))]
    return {form: _asked(server, sent[form], clients, seconds) for form in turned}


def _asked(server, messages, clients, seconds):
    plan = load_plan.Plan(
        kind="closed", concurrency=clients, seconds=seconds, warm_up=load_plan.WarmUpRule(at_most_s=3.0)
    )
    before, start = server.cpu_s(), time.monotonic()
    found = generator.run(load_plan.Target(address=server.address), payload.Payload(client.PREDICT, messages), plan)
    after, wall = server.cpu_s(), time.monotonic() - start
    if not found.ok.all():
        raise SystemExit(f"requests failed: {next(iter(found.errors.values()))}")
    rate = found.rate()
    # The server's share is that of the whole run with its warm-up, in which it is asked in the same way.
    return {
        "rate": rate,
        "p50_ms": found.percentile(0.5).value / 1e6,
        "p99_ms": float(np.percentile(found.latency_ns, 99)) / 1e6,
        "client_ms": 1e3 * found.cpu_share / rate,
        "server_ms": None if before is None else 1e3 * (after - before) / wall / rate,
    }


def summary(batch, rounds):
    """A row's figures: medians of the rounds. Args: batch: pictures of a request. rounds: of `_round`, of one form."""
    found = {
        key: statistics.median(one[key] for one in rounds) if rounds[0][key] is not None else None for key in rounds[0]
    }
    digits = {"rate": 1, "p50_ms": 2, "p99_ms": 2, "client_ms": 3, "server_ms": 3}
    rounded = {key: None if value is None else round(value, digits[key]) for key, value in found.items()}
    return {**rounded, "pictures": round(batch * found["rate"], 1)}


if __name__ == "__main__":
    sys.exit(main())
