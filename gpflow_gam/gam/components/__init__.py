"""Components: terms made concrete by data, and the kernels and inducing variables they become."""

__all__: list[str] = []
