"""The GPU backend: matrix products by the vendor's library, everything between them in two Triton kernels."""
