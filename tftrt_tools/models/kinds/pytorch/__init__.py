"""PyTorch programs (torch.export), run by PyTorch on the CPU: a .pt2 file, or what a function of the user returns."""
