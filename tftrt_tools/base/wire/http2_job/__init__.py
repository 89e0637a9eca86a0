"""HTTP/2 (RFC 9113) and HPACK (RFC 7541), as far as a client of gRPC's unary calls needs them: the load generator uses them."""
