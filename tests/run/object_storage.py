"""A local S3 server in this process (moto), for tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

BUCKET = "herd"


class S3Server:
    """Credentials and switches of the server."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint

    def require_credentials(self) -> None:
        """Refuse every request from now on: no key of moto's may do anything."""
        self._set(0)

    def allow_all(self) -> None:
        """Accept every request again."""
        self._set(float("inf"))

    def _set(self, number: float) -> None:
        from moto import settings  # noqa: PLC0415
        from moto.core import set_initial_no_auth_action_count  # noqa: F401, PLC0415
        from moto.core.responses import ActionAuthenticatorMixin  # noqa: PLC0415

        ActionAuthenticatorMixin.request_count = 0
        settings.INITIAL_NO_AUTH_ACTION_COUNT = number


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """Start the server with one bucket, and point the environment to it."""
    import boto3  # noqa: PLC0415  takes half a second, which tests of other addresses need not wait for
    from moto.server import ThreadedMotoServer  # noqa: PLC0415

    server = ThreadedMotoServer(port=0)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_DEFAULT_REGION": "us-east-1",
        }.items():
            patch.setenv(name, value)
        boto3.client("s3", endpoint_url=endpoint).create_bucket(Bucket=BUCKET)
        try:
            yield S3Server(endpoint)
        finally:
            server.stop()
