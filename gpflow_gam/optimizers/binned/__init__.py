"""
Fits of GAMs by sums over (binned) rows.

:class:`gpflow_gam.GAM` uses it; its modules are no interface for users.
"""

__all__: list[str] = []
