"""Small real data that come with the package."""

from .bikeshare import bikeshare

__all__ = ["bikeshare"]
