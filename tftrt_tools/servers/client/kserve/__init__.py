"""The client of Triton, by KServe's protocol v2 over gRPC (grpc_service.proto of triton-inference-server/common)."""
