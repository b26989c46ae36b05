"""kubectl and helm: every call has a bound, and one that fails says what it was and why."""

import json
import subprocess
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

CALL_S: Final = 60.0
POLL_S: Final = 0.5
SAID_MAX_CHARS: Final = 4000

Object = dict[str, Any]
Answer = TypeVar("Answer")


class ProgramFailed(Exception):
    """A program ended with an error, not in time, or said what nobody understands."""


class Programs:
    """Both programs in one namespace. They take the credentials from KUBECONFIG."""

    def __init__(self, namespace: str, kubectl: str = "kubectl", helm: str = "helm") -> None:
        self.namespace = namespace
        self._kubectl = kubectl
        self._helm = helm

    def kubectl(self, *arguments: str, seconds: float = CALL_S, said: str = "") -> str:
        """Return what it prints; `said` is its standard input. Raises ProgramFailed."""
        return run([self._kubectl, "--namespace", self.namespace, *arguments], seconds, said)

    def helm(self, *arguments: str, seconds: float = CALL_S) -> str:
        """Return what it prints. Raises ProgramFailed."""
        return run([self._helm, "--namespace", self.namespace, *arguments], seconds)

    def get(self, *what: str) -> Object:
        """Return an object, or a list of them. Raises ProgramFailed."""
        found: Object = document(self.kubectl("get", *what, "--output", "json"))
        return found

    def create(self, made: Object) -> None:
        """Create an object. Raises ProgramFailed."""
        self.kubectl("create", "--validate=ignore", "--filename", "-", said=json.dumps(made))


def run(command: list[str], seconds: float, said: str = "") -> str:
    """Run a program to its end; return its standard output. Raises ProgramFailed."""
    line = " ".join(command)
    try:
        done = subprocess.run(
            command, input=said, capture_output=True, text=True, check=False, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        raise ProgramFailed(f"`{line}` did not end within {seconds:.0f} s") from None
    except OSError as error:
        raise ProgramFailed(f"`{line}` did not start: {error.strerror}") from None
    if done.returncode != 0:
        told = "\n".join(filter(None, (done.stderr.strip(), done.stdout.strip())))
        raise ProgramFailed(f"`{line}` ended with {done.returncode}: {told[-SAID_MAX_CHARS:]}")
    return done.stdout


def document(text: str) -> Any:
    """Read JSON that a program printed. Raises ProgramFailed."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise ProgramFailed(f"no JSON ({error}): {text[:SAID_MAX_CHARS]!r}") from None


def until(ask: Callable[[], Answer], seconds: float, otherwise: str) -> Answer:
    """Ask until the answer is true, and return it. A program that fails has no answer yet."""
    end = time.monotonic() + seconds
    while True:
        last: object
        try:
            answer = ask()
            if answer:
                return answer
            last = answer
        except ProgramFailed as error:
            last = error
        assert time.monotonic() < end, f"{otherwise} within {seconds:.0f} s: {last}"
        time.sleep(POLL_S)
