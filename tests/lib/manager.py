#!/usr/bin/python3
"""manager.py MODE PROGRAM ARG...: plays the service manager for a program, as systemd does.

MODE is a list of words separated by commas: `notify` gives it NOTIFY_SOCKET and a watchdog of WATCHDOG_MS, `listen` a
listening socket as descriptor 3, `unix` one with a path, `datagram` one that is none. Prints "PORT n" or "PATH p", each
message on a line of its own, "LEFT True" if that path is there at the end, "END status" when the program ends; passes SIGTERM and SIGHUP on.
"""
import os
import signal
import socket
import sys
import tempfile
import threading

mode = sys.argv[1].split(",")
watchdog_ms = int(os.environ.get("WATCHDOG_MS", "0"))
folder = tempfile.TemporaryDirectory()
os.chmod(folder.name, 0o777)  # so that it could remove what is in it
env = dict(os.environ)


def say(text):
    print(text, flush=True)


given = None
if "listen" in mode:
    given = socket.create_server(("127.0.0.1", 0))
    say("PORT %d" % given.getsockname()[1])
elif "unix" in mode:
    given = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    given.bind(folder.name + "/http")
    os.chmod(folder.name + "/http", 0o666)
    given.listen()
    say("PATH " + folder.name + "/http")
elif "datagram" in mode:
    given = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    given.bind(("127.0.0.1", 0))

notes = None
if "notify" in mode:
    notes = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notes.bind(folder.name + "/notify")
    os.chmod(folder.name + "/notify", 0o666)
    env["NOTIFY_SOCKET"] = folder.name + "/notify"


def prepare():
    """Between fork and exec: what only the new process knows."""
    if watchdog_ms:
        os.environ.update(WATCHDOG_USEC=str(watchdog_ms * 1000), WATCHDOG_PID=str(os.getpid()))
    if given:
        os.dup2(given.fileno(), 3)
        os.set_inheritable(3, True)  # also where it is 3 already
        os.environ.update(LISTEN_FDS="1", LISTEN_PID=str(os.getpid()))
    os.environ.update({k: v for k, v in env.items() if k == "NOTIFY_SOCKET"})
    os.execv(sys.argv[2], sys.argv[2:])


pid = os.fork()
if pid == 0:
    prepare()
for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda n, _: os.kill(pid, n))


def listen():
    while True:
        say("NOTE " + notes.recv(4096).decode().replace("\n", " "))


if notes:
    threading.Thread(target=listen, daemon=True).start()
_, status = os.waitpid(pid, 0)
if "unix" in mode:
    say("LEFT %s" % os.path.exists(folder.name + "/http"))
say("END %d" % os.waitstatus_to_exitcode(status))
