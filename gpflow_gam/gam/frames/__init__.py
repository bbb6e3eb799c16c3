"""Tables of named columns, and how they become the matrix that kernels read."""

__all__: list[str] = []
