"""gRPC's unary calls over HTTP/2 (RFC 9113, RFC 7541), as a server: what the development server needs of it, with few changes of thread."""
