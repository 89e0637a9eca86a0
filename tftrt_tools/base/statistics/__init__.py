"""Statistics of paired rounds, as pure functions of arrays.

Why rounds and not requests: requests of one round share whatever the machine did in that second, so they are no independent draws, and a
test over single requests finds "differences" between a model and itself. The unit that is resampled and ranked is therefore the round, in
which both models took their turns (Kalibera and Jones, "Rigorous benchmarking in reasonable time", ISMM 2013: resample the level at which
the noise enters; Künsch, "The jackknife and the bootstrap for general stationary observations", Annals of Statistics 17, 1989: blocks, not
single values, of dependent data). Where neighbouring rounds may be alike, intervals are lengthened: see `dependence`.
"""
