"""The backend that runs TensorFlow Serving's GPU image in Docker."""

import functools
import json
import os
import pathlib
import secrets
import shutil
import signal
import subprocess

from tftrt_tools.base import errors
from tftrt_tools.base.stack import images, installed
from tftrt_tools.models.savedmodel import engine_assets
from tftrt_tools.servers.serving import server_flags, version_directories
from tftrt_tools.servers.serving.launch import backend, binary, start_preflight
from tftrt_tools.servers.serving.launch import serve_plan as plans
from tftrt_tools.servers.serving.launch.serve_plan import Plan

_HOST = "127.0.0.1"
_STOP_SECONDS = 10
_ASK_SECONDS = 20


class Docker(backend.Backend):
    """A container of an image that is on this machine already; nothing is pulled."""

    name = "docker"

    def __init__(self, image: str = "") -> None:
        """Args: image: name of the image; by default this project's or the stock one of the TensorFlow here, the first that is there."""
        tensorflow = installed.tensorflow()
        self._wanted = (image,) if image else images.of(tensorflow.version if tensorflow else None)

    def available(self) -> tuple[bool, str]:
        return self._state[1:]

    def check(self, plan: Plan) -> None:
        binary.refuse_port_zero(plan)
        if plan.values["grpc_socket_path"]:
            raise errors.UsageError(
                "--grpc_socket_path: the socket would be inside the container", "use --launch=binary, or leave it out"
            )
        self._refuse_foreign_engines(plan)

    def command(self, plan: Plan) -> backend.Command:
        host, name = plan.host or _HOST, f"tftrt-serve-{os.getpid()}-{secrets.token_hex(3)}"
        argv = ["docker", "run", "--rm", "--init", "--name", name]
        if self._nvidia_runtime():
            argv += ["--gpus", "all"]
        for port in filter(None, (plan.port, plan.rest_port)):
            argv += ["--publish", f"{f'[{host}]' if ':' in host else host}:{port}:{port}"]
        for path in mounts(plan):
            argv += ["--mount", f"type=bind,source={path},target={path},readonly"]
        for variable in sorted(
            set(os.environ)
            & {"TF_TRT_ALLOW_ENGINE_NATIVE_SEGMENT_EXECUTION", "TF_CPP_VMODULE", "TF_FORCE_GPU_ALLOW_GROWTH"}
        ):
            argv += ["--env", variable]
        for variable, value in binary.LOG_ENV.items():
            argv += ["--env", f"{variable}={value}"]
        # The image's own entry point would set an unwanted model and REST port.
        argv += ["--entrypoint", binary.PROGRAM, self._state[0], *server_flags.to_arguments(plan.values)]
        # The client passes SIGTERM on to the container; SIGKILL would end only the client.
        return backend.Command(
            argv=tuple(argv),
            env=binary.LOG_ENV,
            ready_probe=plan.probe(host),
            death_signal=signal.SIGTERM,
            cleanup=(("docker", "rm", "--force", name),),
        )

    @functools.cached_property
    def _state(self) -> tuple[str, bool, str]:
        """(image, usable, reason)."""
        if not shutil.which("docker"):
            return "", False, "no docker on PATH"
        code, _out, message = _docker("version", "--format", "{{.Server.Version}}")
        if code:
            return (
                "",
                False,
                "docker's daemon does not answer" + (f" ({message})" if "permission denied" in message else ""),
            )
        for image in self._wanted:
            if not _docker("image", "inspect", image)[0]:
                return image, True, f"docker with the image {image}"
        return "", False, f"docker has no image {' or '.join(self._wanted)}; serving/README.md says how to make it"

    def _nvidia_runtime(self) -> bool:
        code, out, _said = _docker("info", "--format", "{{json .Runtimes}}")
        try:
            return not code and "nvidia" in json.loads(out)
        except ValueError:
            return False

    def _refuse_foreign_engines(self, plan: Plan) -> None:
        """Refuse engines of another TensorRT: they would end the stock image's server without a message."""
        try:
            image = images.image(self._state[0])
        except errors.UsageError:
            return  # an image of the user's own
        if image.tftrt and not image.tensorrt:
            return  # nothing is known of its TensorRT
        for model in plan.models:
            for path in start_preflight.to_load(model):
                for asset in engine_assets.read(path):
                    if not image.tensorrt:
                        raise errors.TftrtError(
                            f"{path} is a TF-TRT model with engines, and {image.name} has no TF-TRT: it does not load there",
                            "use an image with TF-TRT, or publish the original model",
                        )
                    if asset.tensorrt and not engine_assets.same_release(asset.tensorrt, image.tensorrt):
                        reads = images.with_tensorrt(asset.tensorrt)
                        raise errors.TftrtError(
                            f"the engines of {path} are of TensorRT {asset.tensorrt}, and {image.name} has {image.tensorrt}: it "
                            "would end while it loads them",
                            (f"make the image of serving/Dockerfile ({reads}), or " if reads else "")
                            + "publish a copy without engines",
                        )


def mounts(plan: Plan) -> list[pathlib.Path]:
    """Paths that the container needs, with the same names inside as outside: base paths, configuration files, and targets of links in
    base paths."""
    folders = [
        pathlib.Path(plan.values[flag])
        for flag in plans.FILE_FLAGS
        if plan.values[flag] and "://" not in plan.values[flag]
    ]
    for base in filter(None, (model.local_path for model in plan.models)):
        folders.append(base)
        if base.is_dir():
            targets = (
                version.path.resolve() for version in version_directories.listing(base) if version.path.is_symlink()
            )
            folders += [target for target in targets if not target.is_relative_to(base.resolve())]
    kept: list[pathlib.Path] = []
    for path in sorted(set(folders)):
        # The content of a mounted directory comes with it.
        if not any(path.is_relative_to(other) for other in kept):
            kept.append(path)
    return kept


def _docker(*arguments: str) -> tuple[int, str, str]:
    """(exit code, stdout, the last line of stderr) of a docker command."""
    try:
        done = subprocess.run(["docker", *arguments], capture_output=True, text=True, timeout=_ASK_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, "", str(error)
    return done.returncode, done.stdout, (done.stderr.strip().splitlines() or [""])[-1]
