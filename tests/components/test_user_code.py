"""Code of the user's may do anything to its process, and harms neither Herd nor the run."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from herd.components import suites
from herd.components.suites import environment_spec, make_environments
from herd.components.suites.api import UnknownTaskError
from herd.components.suites.checking import QUICK, SUMMARY, learn_spaces, spaces_variable
from herd.components.suites.gymnasium.settings import GymnasiumSettings
from herd.components.user_code import PYTHON, SPACES_VARIABLE, Answer, UserCodeError, call_apart, load_user_code, prints_to_stderr
from herd.config.loading import SettingsError, load_settings
from tests.patience import patient

CARTPOLE = "import gymnasium\ndef make():\n    return gymnasium.make('CartPole-v1')\n"
AT_IMPORT = {
    "hides the GPU": "import os; os.environ['CUDA_VISIBLE_DEVICES'] = '-1'",
    "changes the folder": "import os; os.makedirs('assets', exist_ok=True); os.chdir('assets')",
    "leaves a thread": "import threading, time; threading.Thread(target=lambda: [time.sleep(0.1) for _ in iter(int, 1)]).start()",
    "prints": "import os; print('hello'); os.write(1, b'from C')",
    "ignores SIGTERM": "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)",
    "closes stdout": "import sys; sys.stdout = None",
    "reads the command line": "import argparse; argparse.ArgumentParser().parse_args()",
    "sets up logging": "import logging; logging.basicConfig(level=logging.DEBUG)",
}
ENDS = {
    "import sys; sys.exit('no licence')": "cannot be imported: SystemExit: no licence (MINE.py, line 1)",
    "import os; os._exit(7)": "reading the spaces: its process ended itself with code 7",
    "import os, signal; os.kill(os.getpid(), signal.SIGKILL)": "reading the spaces: its process was ended by SIGKILL",
    "import argparse as a; p = a.ArgumentParser(); p.add_argument('rom'); p.parse_args()": "cannot be imported: SystemExit: 2 (argparse.py",
}


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of a module that no other test has, in the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return f"mine_{abs(hash(str(tmp_path)))}"


@pytest.mark.processes
def test_spaces_are_learned_without_running_the_users_code_here(mine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Path(f"{mine}.py").write_text("\n".join([*AT_IMPORT.values(), CARTPOLE]))
    env = GymnasiumSettings(tasks=(f"{mine}:make",))
    before = dict(os.environ), os.getcwd(), threading.active_count()
    told = learn_spaces(env, QUICK)
    assert (environment_spec(env).vector_size, environment_spec(env).actions.num_actions) == (4, 2)
    assert (dict(os.environ), os.getcwd(), threading.active_count()) == before
    assert mine not in sys.modules
    assert [each.level for each in told if each.level == SUMMARY] == [SUMMARY]
    assert any("it prints" in each.what for each in told)
    # A process that plays no games gets them from the environment, for these settings alone.
    Path(f"{mine}.py").write_text("raise SystemExit")
    monkeypatch.setenv(SPACES_VARIABLE, spaces_variable(env)[SPACES_VARIABLE])
    monkeypatch.setattr(suites, "_learned", {})
    assert learn_spaces(env) == ()
    assert environment_spec(env).vector_size == 4
    with pytest.raises(UnknownTaskError, match="SystemExit"):
        learn_spaces(env.model_copy(update={"max_episode_steps": 7}))


@pytest.mark.processes
@pytest.mark.parametrize(("code", "said"), ENDS.items())
def test_code_that_ends_its_process_is_named_in_one_line(mine: str, code: str, said: str) -> None:
    Path(f"{mine}.py").write_text(f"{code}\n{CARTPOLE}")
    with pytest.raises(UnknownTaskError) as caught:
        learn_spaces(GymnasiumSettings(tasks=(f"{mine}:make",)))
    line = str(caught.value)
    assert line.startswith(f"env.tasks {mine}:make: ")
    assert said.replace("MINE", mine) in line
    assert "\n" not in line


@pytest.mark.processes
def test_a_process_that_hangs_is_not_waited_for(mine: str) -> None:
    Path(f"{mine}.py").write_text("import time\ntime.sleep(3600)")
    env = GymnasiumSettings(tasks=(f"{mine}:make",))
    with pytest.raises(UnknownTaskError, match="no answer within"):
        learn_spaces(env, asked=lambda: True)


HARMLESS = {
    "handler": ("import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)", lambda: signal.getsignal(signal.SIGTERM)),
    "folder": ("import os; os.chdir('/')", os.getcwd),
    "words": ("import sys; sys.argv += ['--mine']", lambda: list(sys.argv)),
    "stdout": ("import sys; sys.stdout = None", lambda: sys.stdout),
    "logging": ("import logging; logging.basicConfig(level=1, force=True)", lambda: (logging.root.level, logging.root.handlers[:])),
    "device": ("import torch; torch.set_default_device('meta')", torch.get_default_device),
    "dtype": ("import torch; torch.set_default_dtype(torch.float64)", torch.get_default_dtype),
    "numpy's errors": ("import numpy; numpy.seterr(all='raise')", np.geterr),
    "sockets": ("import socket; socket.setdefaulttimeout(1e-6)", socket.getdefaulttimeout),
    "gradients": ("import torch; torch.set_grad_enabled(False)", torch.is_grad_enabled),
    "threads": ("import torch; torch.set_num_threads(torch.get_num_threads() + 1)", torch.get_num_threads),
}


@pytest.mark.parametrize("kind", HARMLESS)
@pytest.mark.parametrize("place", ["import", "make", "reset"])
def test_what_code_changes_where_it_plays_is_undone(mine: str, kind: str, place: str) -> None:
    code, state = HARMLESS[kind]
    lines = {each: code if each == place else "pass" for each in ("import", "make", "reset")}
    Path(f"{mine}.py").write_text(f"""
import gymnasium
{lines["import"]}
class Mine(gymnasium.Wrapper):
    def reset(self, **options):
        {lines["reset"]}
        return self.env.reset(**options)
def make():
    {lines["make"]}
    return Mine(gymnasium.make("CartPole-v1"))
""")
    before = state()
    environments = make_environments(GymnasiumSettings(tasks=(f"{mine}:make",)), num_environments=2, first_slot=0, seed=1, num_threads=1)
    environments.reset()
    environments.step(np.zeros(2, np.int32))
    environments.close()
    assert state() == before


def test_a_simulator_finds_the_folder_that_it_wants_at_every_call(mine: str, tmp_path: Path) -> None:
    Path(f"{mine}.py").write_text("""
import os, gymnasium
class Simulator(gymnasium.Wrapper):
    def __init__(self):
        super().__init__(gymnasium.make("CartPole-v1"))
        os.makedirs("assets", exist_ok=True)
        os.chdir("assets")
    def reset(self, **options):
        assert os.path.basename(os.getcwd()) == "assets"
        return self.env.reset(**options)
    def step(self, action):
        assert os.path.basename(os.getcwd()) == "assets"
        return self.env.step(action)
""")
    env = GymnasiumSettings(tasks=(f"{mine}:Simulator",))
    environments = make_environments(env, num_environments=2, first_slot=0, seed=1, num_threads=1)
    environments.reset()
    for _ in range(30):
        environments.step(np.zeros(2, np.int32))
        assert os.getcwd() == str(tmp_path)
    environments.close()
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir() and path.name != "__pycache__") == ["assets"]


@pytest.mark.processes
@pytest.mark.parametrize(
    ("end", "code", "said"),
    [
        ("leave(None, 0)", 0, ""),
        ("leave(None, 2)", 2, ""),
        ("leave(SystemExit('bad input'))", 1, "bad input\n"),
        ("leave(SystemExit(74))", 74, ""),
        ("leave(ValueError('broken'))", 1, "ValueError: broken\n"),
    ],
)
def test_threads_that_never_end_do_not_keep_a_process(end: str, code: int, said: str) -> None:
    program = f"""
import threading
from herd.components.user_code import leave
threading.Thread(target=threading.Event().wait).start()
print("result")
{end}
"""
    done = subprocess.run([*PYTHON, "-c", program], capture_output=True, text=True, timeout=patient(60), check=False)
    assert (done.returncode, done.stdout, done.stderr) == (code, "result\n", said)


def echo(*values: Any) -> Any:
    """Yield what it is given, in another process."""
    yield from values


@pytest.mark.processes
@pytest.mark.parametrize("name", ["queue", "torch", "herd"])
def test_a_file_of_the_user_replaces_no_other_module(mine: str, name: str) -> None:
    Path(f"{name}.py").write_text("raise RuntimeError('my notes')")
    assert call_apart(f"{__name__}:echo", [1, "two"], patient(60)) == Answer([1, "two"], None, "")
    with pytest.raises(UserCodeError, match=f"^env.tasks {name}:mine: {name} in {os.getcwd()} has the name of another module .*rename it$"):
        load_user_code(f"{name}:mine", "env.tasks")
    assert mine not in sys.modules


def test_what_code_prints_is_not_part_of_the_results(capfd: pytest.CaptureFixture[str]) -> None:
    with prints_to_stderr():
        print("from Python")
        os.write(1, b"from C\n")
    print("result")
    out, err = capfd.readouterr()
    assert out == "result\n"
    assert sorted(err.splitlines()) == ["from C", "from Python"]


@pytest.mark.parametrize(
    ("name", "value", "is_ignored"),
    [
        ("HERD_LEARNER_SERVICE_HOST", "10.0.0.7", True),
        ("HERD_PARAMSERVER_SERVICE_PORT_WEIGHTS", "7000", True),
        ("HERD_LEARNER_PORT", "tcp://10.0.0.7:7100", True),
        ("HERD_LEARNER_PORT_7100_TCP", "tcp://10.0.0.7:7100", True),
        ("HERD_LEARNER_PORT_7100_TCP_ADDR", "10.0.0.7", True),
        ("HERD_PORT", "tcp://10.0.0.7:80", True),
        ("HERD_SERVICE_HOST", "10.0.0.7", True),
        ("HERD_LEARNER_PORT", "7100", False),
        ("HERD_LEARNER__PORT", "7100", False),
        ("HERD_SERVICE", "1", False),
    ],
)
def test_variables_that_kubernetes_sets_are_no_settings(name: str, value: str, is_ignored: bool) -> None:
    if is_ignored:
        assert load_settings([], [], {name: value}) == load_settings([], [], {})
    else:
        with pytest.raises(SettingsError, match=f"^{name}: no such setting"):
            load_settings([], [], {name: value})
