"""A stand-in for a service: it reports to the test over TCP, then behaves as told.

child.py PORT NAME BEHAVIOUR DIRECTORY [words of the start...]: BEHAVIOUR is one of
serve: ends with code 0 on SIGTERM; stubborn: ignores SIGTERM; slow: after SIGTERM, ends when the test closes the connection;
exit=N: prints a line and ends with code N at once; until=N: ends with code N when the test closes the connection;
early: SIGTERM kills it, as a service that does not listen yet; early-later: as serve, but as early after a restart.
A learner that ends with code 0 leaves DIRECTORY/report.json.
"""

import os
import signal
import socket
import sys
from pathlib import Path

port, name, behaviour, directory, *words = sys.argv[1:]
if behaviour == "early-later":
    behaviour = "serve" if words == ["restarts=0"] else "early"
stopping: list[int] = []


def end(code):
    if code == 0 and name.startswith("learner"):
        written = Path(directory) / f"report.{os.getpid()}"
        written.write_text("{}")
        written.replace(Path(directory) / "report.json")
    os._exit(code)


def on_term(number, frame):
    stopping.append(number)
    connection.sendall(b"term\n")
    if behaviour in {"serve", "until"}:
        end(0)


print(f"{name} says hello and {behaviour}", flush=True)  # printed before the test knows of the child and can ask it to end
connection = socket.create_connection(("127.0.0.1", int(port)))
if behaviour != "early":
    signal.signal(signal.SIGTERM, on_term)
connection.sendall(f"{name} {os.getpid()} {behaviour} {' '.join(words)}\n".encode())
kind, _, code = behaviour.partition("=")
if kind == "exit":
    end(int(code))
while connection.recv(1):
    pass
end(int(code or 0))
