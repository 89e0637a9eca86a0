"""The load generator: what is sent and when, worker processes without TensorFlow that send it, a record of every request."""
