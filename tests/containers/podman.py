"""podman and buildah with their own storage, so that nothing of this machine is used or changed."""

from __future__ import annotations

import json
import resource
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from tests.images.dockerfiles import DOCKERFILE, ROOT

NEEDED = {"podman": "podman", "buildah": "buildah", "catatonit": "catatonit", "debootstrap": "debootstrap"}
"""Required programs, and the Debian packages that contain them. netavark and aardvark-dns are found through podman's own answer."""
RUNTIMES = ("runc", "crun")
BUILD_SECONDS = 1800
"""Build time-out in seconds: torch is downloaded."""
EPOCH = 1767225600
"""Date of every layer (2026-01-01), so that an image depends on its contents only, not on the day it was built."""
_PIP_KEYS = ("index-url", "extra-index-url", "find-links", "cert", "trusted-host", "no-index")
_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"


def missing_programs() -> list[str]:
    """Names of the packages that must be installed first; nothing is installed here."""
    missing = [package for program, package in NEEDED.items() if shutil.which(program) is None]
    return missing if any(map(shutil.which, RUNTIMES)) else [*missing, RUNTIMES[0]]


class CommandError(AssertionError):
    """A command failed; the message has the last lines of its output."""


class Podman:
    """Storage under ``folder``, as a context manager: containers and networks are removed, and the folder too, unless ``keep_images``."""

    def __init__(self, folder: Path, *, keep_images: bool = False) -> None:
        self._folder = folder
        self._keep_images = keep_images
        folder.mkdir(parents=True, exist_ok=True)
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        processes, _ = resource.getrlimit(resource.RLIMIT_NPROC)
        bound = 4096 if processes == resource.RLIM_INFINITY else min(processes, 4096)
        # Use this process's limits, not podman's default of a million, which not every machine may set. Cgroups do not use systemd.
        (folder / "containers.conf").write_text(
            f'[containers]\ndefault_ulimits = ["nofile={files}:{files}", "nproc={bound}:{bound}"]\n'
            f'[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\nruntime = "{next(filter(shutil.which, RUNTIMES))}"\n'
            f'[network]\nnetwork_backend = "netavark"\nnetwork_config_dir = "{folder / "networks"}"\n'
        )
        (folder / "storage.conf").write_text(
            f'[storage]\ndriver = "overlay"\ngraphroot = "{folder / "graph"}"\nrunroot = "{folder / "run"}"\n'
        )
        self._environment = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/bin",
            "HOME": str(folder),
            "CONTAINERS_CONF": str(folder / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
        }

    def __enter__(self) -> Podman:
        self._clear()
        return self

    def __exit__(self, *error: object) -> None:
        self._clear()
        if not self._keep_images:
            self._quietly("system", "reset", "--force")
            shutil.rmtree(self._folder, ignore_errors=True)

    def _clear(self) -> None:
        self._quietly("pod", "rm", "--all", "--force")
        self._quietly("rm", "--all", "--force", "--time", "5")
        self._quietly("volume", "prune", "--force")
        self._quietly("network", "rm", "--force", "herd-test")

    def _quietly(self, *words: str) -> None:
        subprocess.run(["podman", *words], env=self._environment, check=False, capture_output=True, timeout=300)

    def __call__(self, *words: str, seconds: float = 120) -> str:
        """Run podman and return its output without the last newline.

        Raises:
            CommandError: podman failed; the message has its output.
        """
        return self.command(["podman", *words], seconds=seconds, environment=self._environment)

    def inspect(self, what: str, name: str, field: str) -> Any:
        """Return one field, given as a Go template expression."""
        return json.loads(self("inspect", "--type", what, "--format", f"{{{{json {field}}}}}", name))

    def logs_of(self, name: str, *, pod: bool = False) -> str:
        """Logs of a container, or of all containers of a pod; podman writes logs to standard error."""
        words = ["podman", *(["pod"] if pod else []), "logs", name]
        done = subprocess.run(words, env=self._environment, check=False, capture_output=True, text=True, timeout=60)
        return done.stdout + done.stderr

    def make_base(self, script: Path, folder: Path, tag: str) -> None:
        """Build an image with one layer from the files that ``script`` writes to ``folder``."""
        self.command([str(script), str(folder)], seconds=BUILD_SECONDS)
        archive = folder.with_suffix(".tar")
        # A fixed order and time make the archive independent of when the folder was made.
        self.command(
            ["tar", "--sort=name", f"--mtime=@{EPOCH}", "--numeric-owner", "-C", str(folder), "-cf", str(archive), "."], seconds=300
        )
        self("import", str(archive), tag, seconds=300)
        archive.unlink()
        shutil.rmtree(folder)

    def build(self, service: str, tag: str, base: str, *options: str) -> None:
        """Build a service's image as ``docker build`` would; pip finds its packages as it does on this machine."""
        settings, folders = pip_settings()
        secret = self._folder / "pip.conf"
        secret.write_text(settings)
        mounts = [word for folder in folders for word in ("--volume", f"{folder}:{folder}:ro")]
        self.command(
            [
                *("buildah", "build", "--isolation", "chroot", "--pull-never", "--timestamp", str(EPOCH)),
                *("--secret", f"id=pip.conf,src={secret}", *mounts, *options),
                *("--build-arg", f"BASE={base}", "--build-arg", f"SERVICE={service}"),
                *("--file", str(DOCKERFILE), "--tag", tag, str(ROOT)),
            ],
            seconds=BUILD_SECONDS,
            environment=self._environment,
        )

    @staticmethod
    def command(words: list[str], *, seconds: float = 120, environment: dict[str, str] | None = None) -> str:
        """Run a program and return its output without the last newline.

        Raises:
            CommandError: it failed; the message has its output.
        """
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=seconds, check=False)
        if done.returncode != 0:
            raise CommandError(f"{shlex.join(words)}\nended with {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
        return done.stdout.rstrip("\n")


def pip_settings() -> tuple[str, list[str]]:
    """Text of a pip.conf with the settings of this machine's pip, and the folders and files that it refers to."""
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True, timeout=60).stdout
    values: dict[str, list[str]] = {}
    for line in listed.splitlines():
        key, _, value = line.partition("=")
        name = key.rpartition(".")[2]
        if name in _PIP_KEYS:
            words = value.strip("'\"").replace("\\n", " ").split()
            values.setdefault(name, []).extend(word for word in words if word not in values.get(name, []))
    values = {key: words[-1:] if key in {"index-url", "cert", "no-index"} else words for key, words in values.items()}
    text = "[global]\n" + "".join(f"{key} = {' '.join(words)}\n" for key, words in values.items())
    certificates = values.get("cert") or [_CERTIFICATES]
    return text, sorted({*_local(word for words in values.values() for word in words), *_local(certificates)})


def _local(words: Iterable[str]) -> Iterable[str]:
    """Local folders and files among the words; for an index file:///a/b/simple, its parent folder, which holds the files."""
    for word in words:
        path = Path(urlparse(word).path).parent if word.startswith("file://") else Path(word)
        if path.is_absolute() and path.exists():
            yield str(path)
