"""`tftrt build --on`: the engines of one model for each kind of GPU of a fleet. `building` says what is asked, and puts what comes back in
its place; `build_job` runs on the machine that has the GPU."""
