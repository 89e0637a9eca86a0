"""HTTP/2 (RFC 9113) and HPACK (RFC 7541), as far as gRPC's unary calls need them; a server and a client are made of these parts."""
