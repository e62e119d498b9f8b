"""CURVE keys out of a folder or the environment: which of them a role needs, and one line for whatever is wrong with them.

A key is 32 bytes, written as 64 hexadecimal digits. No ZeroMQ in here, and no key in any message.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pydantic import SecretBytes

from herd.config.layers import SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from herd.config.settings import SecuritySettings

Role = Literal["client", "server"]
"""Of a socket: who binds it is the server. `herd.topology` says which service has which."""
EVERY_ROLE: tuple[Role, ...] = ("server", "client")

DEFAULT_CLIENT = "default"
"""Of the settings: the client that a process is unless it is told."""
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
"""Of a run without keys: what every client shows and every server asks for. ``herd train`` sets it for its children."""
CURVE_VARIABLES = frozenset(name for names in VARIABLES_OF_ROLE.values() for name in names)

_KEY = re.compile(r"[0-9a-fA-F]{64}")
_MOST_BYTES = 1024
"""Read of a key file; the rest of a wrong one is of no interest."""


@dataclass(frozen=True, slots=True)
class ClientKeys:
    """What a client needs: whom it trusts, and its own key."""

    server_public: bytes
    secret: SecretBytes
    name: str
    """Where it came from, for log lines: ``client-default``."""


@dataclass(frozen=True, slots=True)
class ServerKeys:
    """What a server needs: its own key, and whom it lets in."""

    secret: SecretBytes
    clients: Mapping[bytes, str]
    """Public key of each client that is let in, with its name for log lines."""
    folder: Path | None
    """Where ``clients`` came from and may change; None: from the environment, for the life of the process."""


def client_file(name: str, kind: Literal["public", "secret"]) -> str:
    """Name of a client's key file: ``client-default.public``."""
    return f"client-{name}.{kind}"


def check_curve_keys(security: SecuritySettings, environ: Mapping[str, str], roles: Iterable[Role]) -> None:
    """Read the keys of ``roles`` and forget them: whatever is wrong is said before anything is started.

    Raises:
        SettingsError: a key is missing, unreadable or no key; or there are keys in the environment that the settings do not use.

    """
    strays = sorted(CURVE_VARIABLES & set(environ))
    if strays and not security.curve_keys_from_environment:
        # Otherwise a run that its operator believes encrypted would go on in the clear.
        raise SettingsError(f"{strays[0]}: set in the environment but not used: give --security.curve_keys_from_environment, or unset it")
    for role in roles:
        _ = load_client_keys(security, environ) if role == "client" else load_server_keys(security, environ)


def curve_environment(environ: Mapping[str, str], roles: Iterable[Role]) -> dict[str, str]:
    """Pick the variables with the keys that ``roles`` need, and no other."""
    wanted = {name for role in roles for name in VARIABLES_OF_ROLE[role]}
    return {name: value for name, value in environ.items() if name in wanted}


def load_client_keys(security: SecuritySettings, environ: Mapping[str, str]) -> ClientKeys | None:
    """Read the keys of a client; None where CURVE is off.

    Raises:
        SettingsError: a key is missing, unreadable or no key.

    """
    if security.curve_keys_from_environment:
        secret = SecretBytes(_variable(environ, CLIENT_SECRET_VARIABLE, "its client key"))
        return ClientKeys(_variable(environ, SERVER_PUBLIC_VARIABLE, "the server's public key"), secret, CLIENT_SECRET_VARIABLE)
    if security.curve_keys is None:
        return None
    folder = _folder(security.curve_keys)
    name = f"client-{security.curve_client}"
    server_public = read_key(folder / SERVER_PUBLIC_FILE, f"copy it from the servers' folder, or make all keys: herd keys {folder}")
    others = sorted(path.name.removeprefix("client-").removesuffix(".secret") for path in folder.glob("client-*.secret"))
    hint = f"set security.curve_client to one of {', '.join(others)}" if others else f"make it: herd keys {folder} --client NAME"
    return ClientKeys(server_public, SecretBytes(read_key(folder / client_file(security.curve_client, "secret"), hint)), name)


def load_server_keys(security: SecuritySettings, environ: Mapping[str, str]) -> ServerKeys | None:
    """Read the keys of a server; None where CURVE is off.

    Raises:
        SettingsError: a key is missing, unreadable or no key, or nobody would be let in.

    """
    if security.curve_keys_from_environment:
        secret = SecretBytes(_variable(environ, SERVER_SECRET_VARIABLE, "its server key"))
        texts = environ.get(CLIENT_PUBLIC_VARIABLE, "").replace(",", " ").split()
        if not texts:
            raise SettingsError(f"{CLIENT_PUBLIC_VARIABLE}: not set: a server finds the clients it lets in there, comma-separated")
        clients = {}
        for number, text in enumerate(texts, start=1):
            name, _, digits = text.rpartition("=")  # actor-1=0123..., or the digits alone
            where = f"number {number} of {CLIENT_PUBLIC_VARIABLE}"
            clients[_parse(digits, where)] = f"client-{name}" if name else where
        return ServerKeys(secret, clients, None)
    if security.curve_keys is None:
        return None
    folder = _folder(security.curve_keys)
    secret = SecretBytes(read_key(folder / SERVER_SECRET_FILE, f"a server needs it; make keys: herd keys {folder}"))
    try:
        files = client_key_files(folder)
    except OSError as error:
        raise SettingsError(f"{folder}: cannot be listed: {error.strerror or error}; give this user the right to read it") from None
    if not files:
        raise SettingsError(
            f"{folder}: holds no client-NAME.public: no client would be accepted; make one: herd keys {folder} --client NAME"
        )
    return ServerKeys(secret, {read_key(file, "copy it again"): file.stem for file in files}, folder)


def client_key_files(folder: Path) -> list[Path]:
    """The public keys of those who are let in.

    Raises:
        OSError: the folder cannot be read.

    """
    return sorted(path for path in folder.iterdir() if path.name.startswith("client-") and path.name.endswith(".public"))


def read_key(file: Path, advice: str) -> bytes:
    """Read one key, 32 bytes.

    Raises:
        SettingsError: it is missing (the line ends in ``advice``), cannot be read, or is no key; or it is secret and everybody can
            read it.

    """
    try:
        with file.open("rb") as stream:
            mode = os.fstat(stream.fileno()).st_mode
            text = stream.read(_MOST_BYTES)
    except FileNotFoundError:
        raise SettingsError(f"{file}: no such key; {advice}") from None
    except OSError as error:
        raise SettingsError(f"{file}: cannot be read: {error.strerror or error}; give this user the right to read it") from None
    if file.suffix == SECRET_SUFFIX and mode & stat.S_IROTH:
        raise SettingsError(f"{file}: every user of this machine can read it: make new keys (herd keys), and keep secrets at mode 600")
    return _parse(text.decode("ascii", "replace"), str(file))


def _folder(folder: Path) -> Path:
    """The folder of keys, where it is one."""
    if folder.is_dir():
        return folder
    if _KEY.fullmatch(folder.name):
        raise SettingsError("security.curve_keys: takes a folder of keys, not a key (it is not repeated here); make one: herd keys keys")
    if folder.exists():
        raise SettingsError(f"security.curve_keys: {folder}: not a folder; make one: herd keys keys")
    raise SettingsError(f"security.curve_keys: {folder}: no such folder; make it: herd keys {folder}")


def _variable(environ: Mapping[str, str], name: str, what: str) -> bytes:
    text = environ.get(name, "")
    if not text.strip():
        raise SettingsError(f"{name}: not set: with security.curve_keys_from_environment this process finds {what} there")
    return _parse(text, name)


def _parse(text: str, where: str) -> bytes:
    text = text.strip()
    if _KEY.fullmatch(text) is None:
        found = f"{len(text)} characters" if len(text) != 64 else "other characters"
        raise SettingsError(f"{where}: not a key: should be 64 hexadecimal digits, found {found}; copy it whole, or make keys: herd keys")
    return bytes.fromhex(text)
