"""Programs in Node, with npm's `amqplib` and `ioredis`: they share nothing with Holdfast but a contract."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.servers import ServerMissingError
from tools.debian import NotInstalledError, install, may_install

PACKAGES = {"amqplib": "0.10.9", "ioredis": "5.8.2"}
INSTALL_TIMEOUT = 120.0
RUN_TIMEOUT = 60.0

HOW_TO_GET_NODE = (
    "These tests need Node 18 or newer, npm and its packages amqplib and ioredis: install them (Debian: apt-get install nodejs npm), "
    "and let npm reach its registry."
)


class NodePrograms:
    """Runs scripts, from the folder of packages that were installed for the tests."""

    def __init__(self, modules: Path) -> None:
        self._modules = modules

    def start(self, script: Path, *arguments: str) -> subprocess.Popen[str]:
        """Start a script. The caller waits for its end."""
        return subprocess.Popen(
            ["node", script, *arguments],
            env=os.environ | {"NODE_PATH": str(self._modules)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, script: Path, *arguments: str) -> str:
        """Run a script to its end, and return what it printed. Raises `AssertionError` with its error."""
        with self.start(script, *arguments) as process:
            try:
                printed, error = process.communicate(timeout=RUN_TIMEOUT)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        assert process.returncode == 0, error
        return printed


def open_node() -> NodePrograms:
    """Return programs with their packages; as root on Debian, Node is installed first. Raises `ServerMissingError`."""
    if not _has_node() and may_install():
        try:
            install("nodejs", "npm")
        except NotInstalledError as error:
            raise ServerMissingError(f"{error} {HOW_TO_GET_NODE}") from error
    if not _has_node():
        raise ServerMissingError(HOW_TO_GET_NODE)
    return NodePrograms(_packages())


def _has_node() -> bool:
    return shutil.which("node") is not None and shutil.which("npm") is not None


def _packages() -> Path:
    """Return the folder with the packages; they are downloaded once for each user of the machine."""
    wanted = [f"{name}@{version}" for name, version in PACKAGES.items()]
    cache = Path(tempfile.gettempdir()) / f"holdfast-npm-{'-'.join(wanted)}-{os.getuid()}"
    if not all((cache / f"node_modules/{name}/package.json").exists() for name in PACKAGES):
        folder = Path(tempfile.mkdtemp(prefix="holdfast-npm-"))
        command = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"]
        done = subprocess.run(
            [*command, "--prefix", folder, *wanted],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=INSTALL_TIMEOUT,
        )
        if done.returncode:
            shutil.rmtree(folder)
            raise ServerMissingError(f"npm install failed: {done.stderr.strip()[-300:]} {HOW_TO_GET_NODE}")
        try:
            folder.rename(cache)
        except OSError:  # another process was quicker
            shutil.rmtree(folder)
    return cache / "node_modules"
