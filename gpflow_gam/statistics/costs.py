"""What numbers cost, by which cheaper of two equal routes is chosen."""

FLOPS = 2e10
"""Floating-point operations a second, in products of matrices."""
LOOKUP = 3e-9
"""Seconds that a number takes that is addressed by an index."""
CALL = 3e-4
"""Seconds that the table of a pair of components takes beside its entries."""
FEATURE = 2e-8
"""Seconds that an entry of a component's features takes, between a bin and an inducing input."""
MAX_TABLE = 2**21
"""Entries of a table of two components' bins; beyond, only the pairs that occur are kept."""
