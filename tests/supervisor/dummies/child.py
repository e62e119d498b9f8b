"""A stand-in for a service: reports to the test over TCP, then behaves as told.

child.py PORT NAME BEHAVIOUR [words of the start...]: BEHAVIOUR is one of
  serve: SIGTERM ends it with code 0; stubborn: ignores SIGTERM; slow: SIGTERM, then ends when the test closes the connection;
  exit=N: prints a line, ends with code N at once; until=N: ends with code N when the test closes the connection;
  early: SIGTERM kills it, as a service that does not listen yet.
"""

import os
import signal
import socket
import sys

port, name, behaviour, *words = sys.argv[1:]
stopping = []


def on_term(number, frame):
    stopping.append(number)
    connection.sendall(b"term\n")
    if behaviour in {"serve", "until"}:
        os._exit(0)


print(f"{name} says hello and {behaviour}", flush=True)  # before the test can know of it and ask for its end
connection = socket.create_connection(("127.0.0.1", int(port)))
if behaviour != "early":
    signal.signal(signal.SIGTERM, on_term)
connection.sendall(f"{name} {os.getpid()} {behaviour} {' '.join(words)}\n".encode())
kind, _, code = behaviour.partition("=")
if kind == "exit":
    os._exit(int(code))
while connection.recv(1):
    pass
os._exit(int(code or 0))
