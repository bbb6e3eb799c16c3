"""Other programs and processes that tests run."""

import subprocess
import sys
from typing import Any


def output(*command: Any, seconds: float = 300.0, **options: Any) -> str:
    """What a program prints; that it fails is an error with what it says of it."""
    options = {"capture_output": True, "text": True, "timeout": seconds, **options}
    done = subprocess.run([str(part) for part in command], check=False, **options)
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


def python(code: str, *arguments: Any, **options: Any) -> str:
    """What a fresh process of Python prints that runs this code."""
    return output(sys.executable, "-c", code, *arguments, **options)
