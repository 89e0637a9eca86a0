"""The load generator: schedules of requests, worker processes without TensorFlow that send them, and a record of every request."""
