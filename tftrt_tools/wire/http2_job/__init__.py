"""HTTP/2 (RFC 9113) and HPACK (RFC 7541), as far as the unary calls of gRPC need them: the development server and the load generator's
processes are made of these parts."""
