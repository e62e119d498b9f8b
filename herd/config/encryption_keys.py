"""CURVE keys from a folder or the environment: which keys a role needs, and one line about anything that is wrong with them.

A key is 32 bytes, written as 64 hexadecimal digits. This module does not use ZeroMQ, and no error message contains a key.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pydantic import SecretBytes

from herd.config.errors import SettingsError
from herd.files import MAX_JSON_BYTES, open_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from herd.config.run import SecuritySettings

Role = Literal["client", "server"]
"""Role of a socket: the side that binds it is the server. `herd.topology` lists the roles of each service."""
EVERY_ROLE: tuple[Role, ...] = ("server", "client")

DEFAULT_CLIENT = "default"
"""Default client name of a process (``security.curve_client``)."""
SECRET_SUFFIX = ".secret"  # noqa: S105  an ending of names
SERVER_PUBLIC_FILE = "server.public"
SERVER_SECRET_FILE = "server.secret"  # noqa: S105  a file's name
SERVER_PUBLIC_VARIABLE = "HERD_CURVE_SERVER_PUBLIC_KEY"
SERVER_SECRET_VARIABLE = "HERD_CURVE_SERVER_SECRET_KEY"  # noqa: S105  a variable's name
CLIENT_SECRET_VARIABLE = "HERD_CURVE_CLIENT_SECRET_KEY"  # noqa: S105  as above
CLIENT_PUBLIC_VARIABLE = "HERD_CURVE_CLIENT_PUBLIC_KEYS"
VARIABLES_OF_ROLE: dict[Role, tuple[str, ...]] = {
    "client": (SERVER_PUBLIC_VARIABLE, CLIENT_SECRET_VARIABLE),
    "server": (SERVER_SECRET_VARIABLE, CLIENT_PUBLIC_VARIABLE),
}
"""A client's public key follows from its secret one, and so does the server's."""
RUN_TOKEN_VARIABLE = "HERD_RUN_TOKEN"  # noqa: S105  a variable's name
"""Token of a run without keys: every client presents it and every server requires it. ``herd train`` sets it for its children."""
CURVE_VARIABLES = frozenset(name for names in VARIABLES_OF_ROLE.values() for name in names)

_KEY = re.compile(r"[0-9a-fA-F]{64}")
_MAX_BYTES = 1024
"""Number of bytes that are read of a key file. More is not needed to detect a wrong file."""


@dataclass(frozen=True, slots=True)
class ClientKeys:
    """The keys of a client: the server's public key and its own key pair."""

    server_public: bytes
    secret: SecretBytes
    name: str
    """Source of the key for log lines, such as ``client-default``."""


@dataclass(frozen=True, slots=True)
class ServerKeys:
    """The keys of a server: its own key and the public keys of the clients that it accepts."""

    secret: SecretBytes
    clients: Mapping[bytes, str]
    """Public key of each accepted client, with the client's name for log lines."""
    folder: Path | None
    """The folder that ``clients`` came from, whose contents may change. None: they came from the environment and do not change."""


def client_file(name: str, kind: Literal["public", "secret"]) -> str:
    """Return the name of a client's key file, such as ``client-default.public``."""
    return f"client-{name}.{kind}"


def check_curve_keys(security: SecuritySettings, environ: Mapping[str, str], roles: Iterable[Role]) -> None:
    """Check the keys of ``roles``, so that errors are reported before any process is started.

    Raises:
        SettingsError: a key is missing, unreadable or invalid; or the environment contains keys that the settings do not use.

    """
    strays = sorted(CURVE_VARIABLES & set(environ))
    if strays and not security.curve_keys_from_environment:
        # Otherwise a run would be unencrypted although its operator believes it to be encrypted.
        raise SettingsError(f"{strays[0]}: set in the environment but not used: add --security.curve_keys_from_environment, or unset it")
    for role in roles:
        _ = load_client_keys(security, environ) if role == "client" else load_server_keys(security, environ)


def curve_environment(environ: Mapping[str, str], roles: Iterable[Role]) -> dict[str, str]:
    """Return only the variables with keys that ``roles`` need."""
    wanted = {name for role in roles for name in VARIABLES_OF_ROLE[role]}
    return {name: value for name, value in environ.items() if name in wanted}


def load_client_keys(security: SecuritySettings, environ: Mapping[str, str]) -> ClientKeys | None:
    """Read the keys of a client; None if CURVE is off.

    Raises:
        SettingsError: a key is missing, unreadable or invalid.

    """
    if security.curve_keys_from_environment:
        secret = SecretBytes(_variable(environ, CLIENT_SECRET_VARIABLE, "its client key"))
        return ClientKeys(_variable(environ, SERVER_PUBLIC_VARIABLE, "the server's public key"), secret, CLIENT_SECRET_VARIABLE)
    if security.curve_keys is None:
        return None
    folder = _folder(security.curve_keys)
    name = f"client-{security.curve_client}"
    server_public = read_key(folder / SERVER_PUBLIC_FILE, f"copy it from the servers' folder, or create all keys: herd keys {folder}")
    others = sorted(path.name.removeprefix("client-").removesuffix(".secret") for path in folder.glob("client-*.secret"))
    hint = f"set security.curve_client to one of {', '.join(others)}" if others else f"create it: herd keys {folder} --client NAME"
    return ClientKeys(server_public, SecretBytes(read_key(folder / client_file(security.curve_client, "secret"), hint)), name)


def load_server_keys(security: SecuritySettings, environ: Mapping[str, str]) -> ServerKeys | None:
    """Read the keys of a server; None if CURVE is off.

    Raises:
        SettingsError: a key is missing, unreadable or invalid, or no client would be accepted.

    """
    if security.curve_keys_from_environment:
        secret = SecretBytes(_variable(environ, SERVER_SECRET_VARIABLE, "its server key"))
        texts = environ.get(CLIENT_PUBLIC_VARIABLE, "").replace(",", " ").split()
        if not texts:
            raise SettingsError(f"{CLIENT_PUBLIC_VARIABLE}: not set: a server needs the public keys of its clients there, comma-separated")
        clients = {}
        for number, text in enumerate(texts, start=1):
            name, _, digits = text.rpartition("=")  # actor-1=0123..., or the digits alone
            where = f"number {number} of {CLIENT_PUBLIC_VARIABLE}"
            clients[_parse(digits, where)] = f"client-{name}" if name else where
        return ServerKeys(secret, clients, None)
    if security.curve_keys is None:
        return None
    folder = _folder(security.curve_keys)
    secret = SecretBytes(read_key(folder / SERVER_SECRET_FILE, f"a server needs it; create keys: herd keys {folder}"))
    try:
        files = client_key_files(folder)
    except OSError as error:
        raise SettingsError(f"{folder}: cannot be listed: {error.strerror or error}; make it readable for this user") from None
    if not files:
        raise SettingsError(
            f"{folder}: contains no client-NAME.public, so no client would be accepted; create one: herd keys {folder} --client NAME"
        )
    return ServerKeys(secret, {read_key(file, "copy it again"): file.stem for file in files}, folder)


def client_key_files(folder: Path) -> list[Path]:
    """Return the public key files of the accepted clients.

    Raises:
        OSError: the folder cannot be read.

    """
    return sorted(path for path in folder.iterdir() if path.name.startswith("client-") and path.name.endswith(".public"))


def read_key(file: Path, advice: str) -> bytes:
    """Read one key, 32 bytes.

    Raises:
        SettingsError: the file is missing (the line ends in ``advice``), cannot be read, or is not a key; or it is a secret key that
            every user can read.

    """
    try:
        with open_file(file, MAX_JSON_BYTES) as stream:
            mode = os.fstat(stream.fileno()).st_mode
            text = stream.read(_MAX_BYTES)
    except FileNotFoundError:
        raise SettingsError(f"{file}: no such file; {advice}") from None
    except OSError as error:
        raise SettingsError(f"{file}: cannot be read: {error.strerror or error}; make it readable for this user") from None
    if file.suffix == SECRET_SUFFIX and mode & stat.S_IROTH:
        raise SettingsError(f"{file}: readable by every user of this machine; create new keys (herd keys) and keep secret keys at mode 600")
    return _parse(text.decode("ascii", "replace"), str(file))


def _folder(folder: Path) -> Path:
    """Return the folder of keys if it is a folder."""
    if folder.is_dir():
        return folder
    if _KEY.fullmatch(folder.name):
        raise SettingsError("security.curve_keys: must be a folder of keys, not a key (not shown here); create one: herd keys keys")
    if folder.exists():
        raise SettingsError(f"security.curve_keys: {folder}: not a folder; create one: herd keys keys")
    raise SettingsError(f"security.curve_keys: {folder}: no such folder; create it: herd keys {folder}")


def _variable(environ: Mapping[str, str], name: str, what: str) -> bytes:
    text = environ.get(name, "")
    if not text.strip():
        raise SettingsError(f"{name}: not set: with security.curve_keys_from_environment it must hold {what}")
    return _parse(text, name)


def _parse(text: str, where: str) -> bytes:
    text = text.strip()
    if _KEY.fullmatch(text) is None:
        found = f"{len(text)} characters" if len(text) != 64 else "other characters"
        raise SettingsError(
            f"{where}: not a key: should be 64 hexadecimal digits, found {found}; copy all of it, or create keys: herd keys"
        )
    return bytes.fromhex(text)
