"""Python's garbage collector while large modules are imported."""

import contextlib
import gc


@contextlib.contextmanager
def paused():
    """Collect nothing meanwhile, and never look at what was made here again.

    TensorFlow's import makes hundreds of thousands of objects that stay, and looking through them for garbage is a fifth of its time.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
