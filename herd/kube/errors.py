"""What stands between the person at the terminal and the cluster. Imports nothing: ``herd --help`` does without kubernetes."""

from __future__ import annotations


class KubeError(Exception):
    """One line for the person at the terminal."""


class UnreachableError(KubeError):
    """The API server did not answer, or cannot answer now; the same request may succeed later."""


class NotAllowedError(KubeError):
    """The API server refused: the credentials lack a permission, which the line names as verb and resource."""


class NotFoundError(KubeError):
    """The API server knows no such object, or no such kind of object."""
