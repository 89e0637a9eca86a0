"""Who builds: what is asked of a back end, and what it promises."""
