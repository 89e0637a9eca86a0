"""The search for the batching parameters with which a server keeps a promise at the highest rate (`tftrt bench --tune_batching`)."""
