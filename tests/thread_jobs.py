"""Jobs of child processes whose threads fail."""

import threading
import time


def _fail():
    raise FileNotFoundError(2, "No such file or directory", "/nowhere")


def waits(seconds):
    """Fails in a thread while the job is busy."""
    threading.Thread(target=_fail).start()
    time.sleep(seconds)
    return "done"


def bug(seconds):
    """A bug in a thread."""
    threading.Thread(target=lambda: [].pop()).start()
    time.sleep(seconds)
    return "done"
