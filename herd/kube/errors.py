"""Errors of the access to a cluster. This module imports nothing, because ``herd --help`` must not need kubernetes."""

from __future__ import annotations


class KubeError(Exception):
    """An error; the message is one line."""


class UnreachableError(KubeError):
    """The API server did not answer, or cannot answer now; the same request may succeed later."""


class NotAllowedError(KubeError):
    """The API server refused: the credentials lack a permission, which the line names as verb and resource."""


class NotFoundError(KubeError):
    """The API server knows no such object, or no such kind of object."""
