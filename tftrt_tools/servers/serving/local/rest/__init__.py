"""The REST API of the local server: the routes, JSON and errors of tensorflow_model_server 2.14.1."""
