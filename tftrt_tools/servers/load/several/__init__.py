"""One load from several machines: `splitting` shares the plan out, `conducting` holds the generators and begins and ends them together, by
clocks that `clocks` compares; `generator_job` is the generator on its machine, `travelling` what goes to it and comes back, and `merging`
makes one run of it all."""
