"""``herd keys``: creates the key pairs for CURVE, one key per file."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from herd.cli.options import CommandError, OneLineParser
from herd.config.encryption_keys import SERVER_PUBLIC_FILE, SERVER_SECRET_FILE, client_file
from herd.config.run import CLIENT_NAME, SecuritySettings

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT_CLIENT = SecuritySettings().curve_client
SECRET_MODE = 0o600
PUBLIC_MODE = 0o644
_DESCRIPTION = """Creates the keys of encrypted and authenticated connections: a server pair and a client pair, or one more client pair.
Servers accept every client whose client-NAME.public is in their folder; deleting that file revokes the client."""


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(prog="herd keys", description=_DESCRIPTION)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder for the keys; created if missing")
    parser.add_argument("--client", type=_client_name, metavar="NAME", help="create only a client pair of this name, no server pair")
    parser.add_argument("--force", action="store_true", help="replace existing keys; processes that use the old keys can no longer connect")
    return parser


def run(argv: Sequence[str]) -> int:
    """Create keys; returns the exit code."""
    options = _parser().parse_args(argv)
    print(*make_keys(options.folder, client=options.client, force=options.force), sep="\n")
    print(_advice(options.folder, options.client))
    return 0


def make_keys(folder: Path, *, client: str | None = None, force: bool = False) -> list[Path]:
    """Create a server pair and a client pair in ``folder``, or only the pair of ``client``; returns the files.

    Raises:
        CommandError: a key exists and may not be replaced (nothing was created), or the folder cannot be written.

    """
    name = client if client is not None else DEFAULT_CLIENT
    files = [client_file(name, "secret"), client_file(name, "public")]
    if client is None:
        files = [SERVER_SECRET_FILE, SERVER_PUBLIC_FILE, *files]
    taken = [file for file in files if (folder / file).exists()]
    if taken and not force:
        raise CommandError(
            f"{folder}: {', '.join(taken)} already exist; --force replaces them, and processes that use the old keys can no longer connect"
        )
    from herd.transport.keys import new_key_pair  # noqa: PLC0415  --help and refusals do without ZeroMQ

    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for secret_file, public_file in zip(files[::2], files[1::2], strict=True):
            public, secret = new_key_pair()
            _write(folder / secret_file, secret, SECRET_MODE, force=force)
            _write(folder / public_file, public, PUBLIC_MODE, force=force)
    except OSError as error:
        raise CommandError(f"{error.filename or folder}: cannot be written: {error.strerror or error}") from None
    return [folder / file for file in files]


def _write(file: Path, key: bytes, mode: int, *, force: bool) -> None:
    """Write a key atomically. The file has its mode from the first byte on."""
    target = file.with_name(f".{file.name}.{os.getpid()}.new") if force else file
    # O_EXCL: follows no symbolic link and overwrites no key that has appeared in the meantime.
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as stream:
            os.fchmod(stream.fileno(), mode)  # regardless of the umask
            stream.write(f"{key.hex()}\n")
        if force:
            target.replace(file)
    except BaseException:
        with contextlib.suppress(OSError):
            target.unlink()
        raise


def _client_name(text: str) -> str:
    if re.fullmatch(CLIENT_NAME, text) is None:
        raise argparse.ArgumentTypeError(f"{text!r}: a name is up to 64 letters, digits, dots, dashes and underscores")
    return text


def _advice(folder: Path, client: str | None) -> str:
    as_client = f" --security.curve_client {client}" if client is not None else ""
    lines = [f"use:        herd train FILE --security.curve_keys {folder}{as_client}"]
    if client is None:
        lines.append(f"add client: herd keys {folder} --client NAME, used with --security.curve_client NAME")
    elif not (folder / SERVER_PUBLIC_FILE).exists():
        lines.append(f"also copy:  {SERVER_PUBLIC_FILE} of the servers to this folder")
    shut_out = client_file(client if client is not None else DEFAULT_CLIENT, "public")
    lines.append(f"revoke:     delete {shut_out} in the servers' folder; it takes effect within a second")
    lines.append("Keep secret keys out of version control and images. docs/messaging.md says which process needs which file.")
    return "\n".join(lines)
