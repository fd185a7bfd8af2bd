"""The command server: runs agents' commands in jails, on a Unix socket, for every harness alike.

>>> with CommandServer(folder.path, spec, find_host(), Hidden.default()) as server:
...     with server.attempt(workspace, Path("commands.jsonl")) as commands:
...         commands.run(["/bin/bash", "-c", "wc -l candidate_ids.txt"], timeout_s=120).output
PosixPath('.../w/0b1c2d3e/4f5a6b7c/outputs/0001.txt')

A request is one line `{"token": ..., "argv": [...], "timeout_s": ...}`, the answer one line with the fields of a
CommandResult, or `{"refused": "unknown token"}`. Each command has a connection of its own and ends when that does.
Not covered: what a command may see (profile.py), how much of its output a model gets to read (dkgi/truncate.py).
"""

import dataclasses
import json
import os
import secrets
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from dkgi import paths
from dkgi.jail.attempt import AttemptCommands, Places
from dkgi.jail.bare import Bare, BareSpec
from dkgi.jail.broker import Broker, Texts
from dkgi.jail.client import CommandClient
from dkgi.jail.command import Jail
from dkgi.jail.preflight import Hidden, check_count, check_disk, check_programs, check_sources, self_check
from dkgi.jail.profile import Host, SandboxSpec, agent_box, config
from dkgi.jail.scratch import unwritable
from dkgi.listener import Listener
from dkgi.process import Lifeline
from dkgi.types import Box, SetupError, Workspace

_REQUEST_BYTES = 8 * 2**20
_REQUEST_S = 10.0
_LONGEST_S = 86_400.0


class CommandServer:
    """Serves until closed. `folder` is a private one, on the file system of the attempts' folders (RunFolder.path).

    Raises SetupError where `folder` cannot be written or cannot hold a socket.
    """

    def __init__(self, folder: Path, spec: SandboxSpec | BareSpec, host: Host, hidden: Hidden) -> None:
        if isinstance(spec, SandboxSpec):
            spec.check()
        self.socket = folder / "commands"
        self._folder, self._spec, self._host, self._hidden = folder, spec, host, hidden
        self.programs, self.sandboxed = host.programs, isinstance(spec, SandboxSpec)
        self._stand_in = folder / secrets.token_hex(4)
        _write_stand_in(self._stand_in)
        self._attempts: dict[str, AttemptCommands] = {}
        self._listener = Listener(self.socket, self._serve, mode=0o600)
        self._lifeline = Lifeline()
        at_once = spec.commands_at_once or max(4, 2 * (os.cpu_count() or 1))
        self._places = Places(at_once)
        # Of many attempts that begin together, the first need not wait until all are checked.
        self._checks = threading.BoundedSemaphore(at_once)
        self._closed = False

    @contextmanager
    def attempt(self, workspace: Workspace, log: Path) -> Iterator[CommandClient]:
        """A client for the commands of one attempt; on leaving, those that run are killed. `log` gets a line a command.

        Raises SandboxError unless the self-check passes in the attempt's own jail: before that nothing can be run in it.
        Raises SetupError where a mounted folder overlaps a hidden one, or the disk is full.
        """
        if self._lifeline.gone:
            raise SetupError("sandbox: the shell that ends jails with dkgi was killed; run the same command again")
        check_disk(workspace.scratch_dir, self.programs)
        token = secrets.token_hex(16)
        with self._place(workspace) as place:
            commands = AttemptCommands(place, self._places, self._folder, workspace, log)
            try:
                self._attempts[token] = commands
                yield CommandClient(self.socket, token)
            finally:
                self._attempts.pop(token, None)
                commands.close()

    def _place(self, workspace: Workspace) -> AbstractContextManager[Jail | Bare]:
        if isinstance(self._spec, BareSpec):
            return nullcontext(Bare(self._spec, workspace, self._host.ripgrep, self._lifeline))
        return self._checked_jail(self._spec, workspace)

    @contextmanager
    def _checked_jail(self, spec: SandboxSpec, workspace: Workspace) -> Iterator[Jail]:
        uid = workspace.scratch_dir.stat().st_uid
        if uid == 0:
            raise ValueError(f"{workspace.scratch_dir} belongs to root; make it with RunFolder.new_attempt")
        box = agent_box(spec, workspace)
        check_sources(box, self._hidden)
        text = partial(config, spec=spec, host=self._host, uid=uid, hidden=self._hidden.paths)
        file = self._folder / f"{secrets.token_hex(4)}.cfg"
        try:
            file.write_text(text(box))
        except OSError as error:
            raise unwritable(error, file) from None
        broker = self._broker(box, text)
        jail = Jail(file, box, self._host.nsjail, uid, self._lifeline, broker, spec.group())
        try:
            with self._checks:
                self_check(jail, self._hidden, self._folder)
                if self.programs:
                    check_programs(jail, self.programs, self._folder)
                if broker:
                    check_count(jail, broker.allowed, self._folder)
                    broker.reset()
            yield jail
        finally:
            file.unlink(missing_ok=True)

    def _broker(self, box: Box, text: Callable[..., str]) -> Broker | None:
        """What starts Python for an attempt, where that is counted; `text` writes a jail's configuration."""
        if self.programs is None or self.programs.python is None:
            return None

        def inner(argv: Sequence[str], environment: Sequence[tuple[str, str]], folder: str) -> str:
            return text(replace(box, cwd=folder, env=tuple(environment), proc=False), python=argv)

        messages = json.loads((paths.data_dir("prompts") / "tools" / "messages.json").read_text())
        texts = Texts(text(box), inner, messages["python_refused"], messages["python_failed"])
        return Broker(self.programs.python_starts, texts, self._folder, self._stand_in)

    def cancel(self) -> None:
        """Kill the commands of all attempts that are open; these attempts are over."""
        for commands in list(self._attempts.values()):
            commands.close()

    def close(self) -> None:
        """Kill all commands and stop serving."""
        if self._closed:
            return
        self._closed = True
        self._listener.close()
        self.cancel()
        self._lifeline.close()
        self._places.close()
        self._stand_in.unlink(missing_ok=True)

    def __enter__(self) -> "CommandServer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _serve(self, connection: socket.socket) -> None:
        connection.settimeout(_REQUEST_S)
        answer = self._answer(connection)
        connection.sendall(json.dumps(answer).encode() + b"\n")

    def _answer(self, connection: socket.socket) -> Mapping[str, Any]:
        try:
            request = json.loads(_line(connection))
            token, argv, timeout_s = request["token"], request["argv"], float(request["timeout_s"])
        except (ValueError, KeyError, TypeError) as error:
            return {"refused": f"malformed request: {error!r}"}
        if not isinstance(argv, list) or not all(isinstance(word, str) for word in argv):
            return {"refused": "malformed request: argv is not a list of strings"}
        if not timeout_s <= _LONGEST_S:
            return {"refused": f"malformed request: timeout_s is not a number up to {_LONGEST_S:g}"}
        commands = self._attempts.get(token)
        if commands is None:
            return {"refused": "unknown token"}
        result = commands.run(argv, timeout_s=timeout_s, connection=connection)
        return dataclasses.asdict(result) | {"output": str(result.output)}


def _write_stand_in(path: Path) -> None:
    """A copy under a neutral name that may be executed: the installed file may not, and its path tells where we are."""
    try:
        path.write_bytes((paths.data_dir("sandbox") / "python3.sh").read_bytes())
        path.chmod(0o755)
    except OSError as error:
        raise unwritable(error, path) from None


def _line(connection: socket.socket) -> bytes:
    """The request. Raises ValueError where it is too long, ConnectionError or TimeoutError where none comes."""
    received = bytearray()
    while not received.endswith(b"\n"):
        block = connection.recv(65536)
        if not block:
            raise ConnectionError("the client is gone")
        received += block
        if len(received) > _REQUEST_BYTES:
            raise ValueError("longer than 8 MiB")
    return bytes(received)
