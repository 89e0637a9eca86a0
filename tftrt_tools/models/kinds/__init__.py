"""Models on disk, of several kinds, and what runs them.

A *model on disk* (`model.Model`) says its kind, its signatures (name, dtype, shape), its engines where it has any, and its passport
(digest, manifest). A *runner* (`execution.runner.Runner`) of that kind, in a child process, answers arrays with arrays and tells what ran
where. Commands open models with `opening.opened`, and run them with `execution.run.run`.
They know no kind by name. A kind that TF-TRT does not convert says so (`Kind.unconverted`), and tells `tftrt inspect` and the reports what
is in its models (`Kind.overview`).

A new kind is a folder here and a line in `table.KINDS`:

  kind.py        an object with the members of `model.Kind`, and the job of its `Runtime`; imports no runtime
  runner_job.py  the child's side: `load`, a context manager that yields a Runner; `job`, which that job is; `make`, for load in process
"""
