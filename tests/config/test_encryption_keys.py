"""Keys from folders and from the environment: which roles need which keys, and a one-line error for every mistake."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from herd.config.encryption_keys import (
    CLIENT_PUBLIC_VARIABLE,
    CLIENT_SECRET_VARIABLE,
    CURVE_VARIABLES,
    EVERY_ROLE,
    SERVER_PUBLIC_VARIABLE,
    SERVER_SECRET_VARIABLE,
    Role,
    check_curve_keys,
    curve_environment,
    load_client_keys,
    load_server_keys,
)
from herd.config.errors import SettingsError
from herd.config.loading import dump_settings, load_settings
from herd.config.run import SecuritySettings

FROM_ENVIRONMENT = SecuritySettings(curve_keys_from_environment=True)


def key() -> str:
    return secrets.token_hex(32)


@pytest.fixture(autouse=True)
def _files_are_private() -> Iterator[None]:
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "keys"
    made.mkdir()
    for name in ("server.public", "server.secret", "client-a.secret", "client-a.public", "client-b.public"):
        (made / name).write_text(f"{key()}\n")
    return made


@pytest.fixture
def environ() -> dict[str, str]:
    return {
        SERVER_PUBLIC_VARIABLE: key(),
        SERVER_SECRET_VARIABLE: key(),
        CLIENT_SECRET_VARIABLE: key(),
        CLIENT_PUBLIC_VARIABLE: f"{key()},{key()}\n",
    }


def security(folder: Path, client: str = "a") -> SecuritySettings:
    return SecuritySettings(curve_keys=folder, curve_client=client)


def problem(settings: SecuritySettings, environ: Mapping[str, str], *roles: Role) -> str:
    with pytest.raises(SettingsError) as caught:
        check_curve_keys(settings, environ, roles)
    (line,) = str(caught.value).splitlines()
    return line


def test_a_folder_gives_each_role_its_keys(folder: Path) -> None:
    text = {path.name: path.read_text().strip() for path in folder.iterdir()}
    server, client = load_server_keys(security(folder), {}), load_client_keys(security(folder), {})
    assert server is not None
    assert client is not None
    assert server.secret.get_secret_value().hex() == text["server.secret"]
    assert {public.hex(): name for public, name in server.clients.items()} == {
        text["client-a.public"]: "client-a",
        text["client-b.public"]: "client-b",
    }
    assert (client.server_public.hex(), client.secret.get_secret_value().hex(), client.name) == (
        text["server.public"],
        text["client-a.secret"],
        "client-a",
    )
    for keys in (server, client):
        assert "*" in repr(keys)
        assert all(value not in repr(keys) for name, value in text.items() if name.endswith(".secret"))


def test_the_environment_gives_each_role_its_keys(environ: dict[str, str]) -> None:
    of_server = {name: environ[name] for name in (SERVER_SECRET_VARIABLE, CLIENT_PUBLIC_VARIABLE)}
    of_client = {name: environ[name] for name in (SERVER_PUBLIC_VARIABLE, CLIENT_SECRET_VARIABLE)}
    assert curve_environment({**environ, "PATH": "/bin"}, ["server"]) == of_server
    assert curve_environment({**environ, "PATH": "/bin"}, ["client"]) == of_client
    server, client = load_server_keys(FROM_ENVIRONMENT, of_server), load_client_keys(FROM_ENVIRONMENT, of_client)
    assert server is not None
    assert client is not None
    assert sorted(public.hex() for public in server.clients) == sorted(environ[CLIENT_PUBLIC_VARIABLE].strip().split(","))
    assert client.server_public.hex() == environ[SERVER_PUBLIC_VARIABLE]


def test_a_role_needs_no_key_of_the_other(folder: Path) -> None:
    (folder / "server.secret").unlink()
    (folder / "client-a.public").unlink()
    check_curve_keys(security(folder), {}, ["client"])
    (folder / "client-a.secret").unlink()
    (folder / "server.public").unlink()
    (folder / "server.secret").write_text(key())
    check_curve_keys(security(folder), {}, ["server"])


def test_without_security_there_is_nothing_to_check() -> None:
    check_curve_keys(SecuritySettings(), {}, EVERY_ROLE)
    assert load_client_keys(SecuritySettings(), {}) is None
    assert load_server_keys(SecuritySettings(), {}) is None


@pytest.mark.parametrize(
    ("name", "role"),
    [("server.secret", "server"), ("client-b.public", "server"), ("server.public", "client"), ("client-a.secret", "client")],
)
@pytest.mark.parametrize("damage", ["empty", "short", "long", "letters", "bytes", "folder"])
def test_a_damaged_key_is_named_and_not_shown(folder: Path, name: str, role: Role, damage: str) -> None:
    file = folder / name
    good = file.read_text().strip()
    contents = {"empty": "", "short": good[:-1], "long": f"{good}{good}", "letters": f"z{good[1:]}", "bytes": "\xff\xfe\x00"}
    file.unlink()
    if damage == "folder":
        file.mkdir()
    else:
        file.write_bytes(contents[damage].encode("latin1"))
    line = problem(security(folder), {}, role)
    assert str(file) in line
    assert "cannot be read: " in line if damage == "folder" else "64 hexadecimal digits" in line
    assert good[1:-1] not in line


@pytest.mark.parametrize(
    ("missing", "role", "words"),
    [
        ("server.secret", "server", ["server.secret: no such file", "herd keys"]),
        ("server.public", "client", ["server.public: no such file", "copy it from the servers' folder"]),
        ("client-a.secret", "client", ["client-a.secret: no such file", "--client NAME"]),
    ],
)
def test_a_missing_key_is_named_with_instructions(folder: Path, missing: str, role: Role, words: list[str]) -> None:
    (folder / missing).unlink()
    line = problem(security(folder), {}, role)
    assert str(folder) in line
    for word in words:
        assert word in line


def test_an_unknown_client_name_is_answered_with_the_existing_ones(folder: Path) -> None:
    (folder / "client-c.secret").write_text(key())
    assert "set security.curve_client to one of a, c" in problem(security(folder, "x"), {}, "client")


def test_a_server_without_client_keys_is_refused(folder: Path) -> None:
    for file in folder.glob("*.public"):
        file.unlink()
    assert "no client would be accepted" in problem(security(folder), {}, "server")


def test_an_invalid_key_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    assert "no such folder; create it: herd keys" in problem(security(tmp_path / "nowhere"), {}, "client")
    assert "not a folder" in problem(security(folder / "server.public"), {}, "client")
    mistaken = key()
    line = problem(SecuritySettings(curve_keys=Path(mistaken)), {}, "client")
    assert "must be a folder of keys, not a key" in line
    assert mistaken not in line


@pytest.mark.parametrize("name", sorted(CURVE_VARIABLES))
@pytest.mark.parametrize("value", [None, "", "  ", "0123456789abcdef", "z" * 64])
def test_a_missing_or_invalid_key_variable_is_named(environ: dict[str, str], name: str, value: str | None) -> None:
    broken = {**environ, name: value} if value is not None else {other: text for other, text in environ.items() if other != name}
    line = problem(FROM_ENVIRONMENT, {name: text for name, text in broken.items() if text is not None}, *EVERY_ROLE)
    assert name in line
    assert not value or not value.strip() or value not in line


def test_unused_keys_in_the_environment_are_refused(folder: Path, environ: dict[str, str]) -> None:
    """A user who provides keys expects encrypted connections."""
    for settings in (SecuritySettings(), security(folder)):
        assert "set in the environment but not used" in problem(settings, environ, "client")


def test_keys_from_folder_and_environment_cannot_be_combined() -> None:
    words = ["--security.curve_keys", "keys", "--security.curve_keys_from_environment"]
    with pytest.raises(SettingsError, match="curve_keys and curve_keys_from_environment cannot be combined"):
        load_settings([], words, {})


def test_keys_never_appear_in_settings(environ: dict[str, str]) -> None:
    settings = load_settings([], ["--security.curve_keys_from_environment"], environ)
    written = dump_settings(settings) + json.dumps(settings.model_dump(mode="json")) + repr(settings)
    assert settings.security.curve
    assert not any(text.strip() in written for text in environ.values())
    with pytest.raises(SettingsError, match=r"HERD_CURVE_SERVER_KEY: no such setting \(environment\); did you mean HERD_CURVE_SERVER_"):
        load_settings([], [], {"HERD_CURVE_SERVER_KEY": "1"})


@pytest.mark.parametrize("client", ["../a", "", ".a", "a/b", "x" * 65])
def test_client_names_cannot_leave_the_folder(client: str) -> None:
    with pytest.raises(SettingsError, match=r"security\.curve_client"):
        load_settings([], ["--security.curve_client", client], {})


@pytest.mark.parametrize("name", ["server.secret", "client-a.secret"])
def test_a_world_readable_secret_is_refused(folder: Path, name: str) -> None:
    """Group-readable secrets are accepted, because clusters mount them that way."""
    security = SecuritySettings(curve_keys=folder, curve_client="a")
    (folder / name).chmod(0o640)
    check_curve_keys(security, {}, EVERY_ROLE)
    (folder / name).chmod(0o644)
    with pytest.raises(SettingsError, match=rf"{name}: readable by every user of this machine; .* mode 600"):
        check_curve_keys(security, {}, EVERY_ROLE)
