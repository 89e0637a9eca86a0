"""Processes of Python that have TensorFlow imported when they begin: forks of one that imported it once and did nothing else with it.

A fork is a process of its own, with its own environment, folder, files and signals, and runs the same code as `python -m MODULE` does. What
it leaves out is the start of Python and the import of TensorFlow without Keras, two seconds of processor time, and the imports of a job that
its parent is asked for again. Whether these work is the business of tests that start processes anew, in tests/rooms/base/test_child.py,
test_lean_import.py and test_doctor.py first.
"""

import collections
import contextlib
import ctypes
import fcntl
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_PR_SET_PDEATHSIG = 1
_LONGEST = 1 << 17  # bytes of a message
_FILES = 16  # that a fork is given, at most
_KEPT = 10  # parents, each 10 to 70 MB of its own: commands give their children eight environments, often in turn
# Variables that are read after the import only: one parent forks processes that differ in them. Any other may change the import. CUDA,
# TensorFlow's allocator for it, and its threads start with the first op; Keras reads its own when it is imported; those of _OURS are read where they are used.
_LATE = frozenset(
    {
        "TMPDIR",
        "PYTHONPATH",
        "PYTEST_CURRENT_TEST",
        "CUDA_VISIBLE_DEVICES",
        "XDG_CACHE_HOME",
        "HOME",
        "PATH",
        "PWD",
        "OLDPWD",
        "XDG_STATE_HOME",
        "TF_FORCE_GPU_ALLOW_GROWTH",
        "TF_NUM_INTRAOP_THREADS",
        "CUDA_MODULE_LOADING",
        "KERAS_BACKEND",
        "PYTHONUNBUFFERED",
    }
)
_OURS = "TFTRT_"
# Jobs that a parent may import. Others load what writes to their log, or what does not stand a fork.
_IMPORTED = (
    "tftrt_tools.accuracy.",
    "tftrt_tools.tftrt.",
    "tftrt_tools.tensorrt.exporting.",
    "tftrt_tools.models.savedmodel.",
)

_used = []
_parents = collections.OrderedDict()  # {environment: Parent}
_turn = threading.Lock()  # one thread at a time asks for a fork


class Fork:
    """Stands for subprocess.Popen of [sys.executable, "-m", module, …]. The arguments are Popen's."""

    def __init__(self, argv, env, cwd=None, stdin=None, stdout=None, stderr=None, pass_fds=(), start_new_session=False):
        self.args, self.returncode, self.stdin, self.stdout = argv, None, None, None
        self._ended, theirs = socket.socketpair()
        with contextlib.ExitStack() as opened:
            opened.enter_context(theirs)
            files = {0: stdin, 1: stdout, 2: stderr}
            for number, file in files.items():
                if file == subprocess.PIPE:
                    reader, writer = os.pipe()
                    own, files[number] = (writer, reader) if number == 0 else (reader, writer)
                    opened.callback(os.close, files[number])
                    setattr(self, ("stdin", "stdout")[number], open(own, "wb" if number == 0 else "rb"))
                elif file == subprocess.DEVNULL:
                    files[number] = opened.enter_context(open(os.devnull, "r+b")).fileno()
                elif file == subprocess.STDOUT:
                    files[number] = files[1]
                elif file is None:
                    files[number] = number
                elif not isinstance(file, int):
                    files[number] = file.fileno()
            files |= {number: number for number in pass_fds}
            request = {
                "argv": list(map(str, argv[2:])),
                "env": dict(env),
                "cwd": str(cwd or os.getcwd()),
                "session": start_new_session,
                "files": list(files),
            }
            with _turn:
                parent = _parent(env)
                self.pid = parent.fork(request, [theirs.fileno(), *files.values()])
                parent.forks.append(self)

    def poll(self):
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout=None):
        if self.returncode is None:
            self._ended.settimeout(timeout)
            try:
                said = self._ended.recv(16)
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(self.args, timeout) from None
            # Nothing is said where the parent itself was killed, and its forks with it.
            self.returncode = int(said) if said else -signal.SIGKILL
            self._ended.close()
        return self.returncode

    def send_signal(self, number):
        if self.poll() is None:
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                # It has ended, and what its parent said of it has not come here: seen in one order of the tests, for a reason not known.
                self.returncode = -number

    def terminate(self):
        self.send_signal(signal.SIGTERM)

    def kill(self):
        self.send_signal(signal.SIGKILL)


class _Parent:
    """The process that forks, seen from here."""

    def __init__(self, environment):
        self.forks = []
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.forks", str(theirs.fileno())],
                cwd=_ROOT,
                env=environment,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )

    @property
    def alive(self):
        return self._process.poll() is None

    @property
    def idle(self):
        """Whether none of its forks runs; they end with it, and a server may have to serve until the end of the tests."""
        self.forks = [one for one in self.forks if one.poll() is None]
        return not self.forks

    def fork(self, request, files):
        """Returns: the process id."""
        socket.send_fds(self._control, [json.dumps(request).encode()], files)
        return int(self._control.recv(16))

    def close(self):
        self._control.close()
        self._process.wait()


def popen(argv, env, **more):
    """As subprocess.Popen. It is a fork where forks are used and Python is to run a module of ours."""
    if not _used or argv[:2] != [sys.executable, "-m"]:
        return subprocess.Popen(argv, env=env, **more)
    return Fork(argv, env, **more)


@contextlib.contextmanager
def used():
    """Until the end of this, `popen` makes forks. They end with it."""
    _used.append(True)
    try:
        yield
    finally:
        _used.pop()
        while _parents:
            _parents.popitem()[1].close()


def _key(env):
    return frozenset((name, value) for name, value in env.items() if name not in _LATE and not name.startswith(_OURS))


def _parent(env):
    key = _key(env)
    if key not in _parents or not _parents[key].alive:
        _parents[key] = _Parent(
            {name: value for name, value in env.items() if name != "TMPDIR"}
            | {"PYTHONPATH": _ROOT, "PYTHONUNBUFFERED": "1"}
        )
    _parents.move_to_end(key)
    for other in list(_parents)[:-_KEPT]:
        if _parents[other].idle:
            _parents.pop(other).close()
    return _parents[key]


# --- the parent


def _imported(target):
    """Import what each child of this job imports before its first call: a tenth of a second, and a third for exports."""
    from tftrt_tools.base.process import child, collection

    with contextlib.suppress(Exception), collection.paused():
        child.function(target).load()


def _main(control):
    """Fork whenever it is asked for, until there is nobody to ask. Returns, in a fork: what it is asked to be."""
    running, asked_for = {}, collections.Counter()
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is not control:
                    selector.unregister(key.fileobj)
                    os.close(key.fileobj)
                    pid, ended = running.pop(key.fileobj)
                    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                    with contextlib.suppress(OSError), ended:
                        ended.send(str(code).encode())
                    continue
                said, files, _, _ = socket.recv_fds(control, _LONGEST, _FILES)
                if not said:
                    os._exit(0)
                request, ended = json.loads(said), socket.socket(fileno=files[0])
                target = request["argv"][-1]
                asked_for[target] += 1
                if asked_for[target] == 2 and target.startswith(_IMPORTED):
                    _imported(target)
                pid = os.fork()
                if not pid:
                    for one in (control, ended, *(other for _, other in running.values())):
                        one.close()
                    for pidfd in running:
                        os.close(pidfd)
                    return request, files[1:]
                for file in files[1:]:
                    os.close(file)
                pidfd = os.pidfd_open(pid)
                running[pidfd] = pid, ended
                selector.register(pidfd, selectors.EVENT_READ)
                control.send(str(pid).encode())


def _become(request, files):
    """What a new process has of its own."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if request["session"]:
        os.setsid()
    highest = max(request["files"]) + 1
    above = [fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, highest) for file in files]
    for file in files:
        os.close(file)
    for file, number in zip(above, request["files"], strict=True):
        os.dup2(file, number)
        os.close(file)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    if not os.environ.get("PYTHONUNBUFFERED"):
        sys.stdout = open(1, "w", encoding=sys.stdout.encoding, closefd=False)
    tempfile.tempdir = None
    sys.path[:] = [
        request["cwd"],
        *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)),
        *(one for one in sys.path if one != _ROOT),
    ]
    sys.argv[1:] = request["argv"][1:]


if __name__ == "__main__":
    import runpy

    from tftrt_tools.base.process import collection, lean_import

    with lean_import.tensorflow(), collection.paused():
        import tensorflow  # noqa: F401

    asked, given = _main(socket.socket(fileno=int(sys.argv[1])))
    _become(asked, given)
    runpy.run_module(asked["argv"][0], run_name="__main__", alter_sys=True)
