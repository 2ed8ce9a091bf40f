"""What the two pods of a probe run, as a text by `python3 -c`: the standard library alone, and any Python from 3.8.

The server listens on three ports and looks around; the client says which of them it reaches. Each writes what it found
as its pod's last word, and ends.
"""

import json
import os
import socket
import ssl
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

OPEN, NO_INGRESS, NO_EGRESS = 8080, 8081, 8082
PATIENCE_SECONDS = 20.0  # until policies know a fresh pod: it is open, or shut, for a second or two as a rule
SERVE_SECONDS = 90.0
ASK_SECONDS = 5.0


def resolved(name):
    try:
        socket.getaddrinfo(name, None)
    except OSError as error:
        return str(error)
    return ""


def connected(host, port):
    """Whether our server says ok: something on the way might take a connection and lead it nowhere."""
    try:
        with socket.create_connection((host, port), 1.0) as connection:
            return connection.recv(2) == b"ok"
    except OSError:
        return False


def reached(host, port):
    try:
        socket.create_connection((host, port), ASK_SECONDS).close()
    except OSError as error:
        return str(error)
    return ""


def answered(url):
    try:
        urllib.request.urlopen(url, timeout=ASK_SECONDS).close()  # noqa: S310 made of a registry's name
    except urllib.error.HTTPError as error:
        return "" if error.code == 401 else f"it answers {error.code}"  # 401: it is a registry, and wants credentials
    except (OSError, ValueError, ssl.SSLError) as error:
        return str(getattr(error, "reason", error))
    return ""


def at_last(look, words, until):
    """What is wrong, once it is so for good: policies that let our pods in know a new one's address after a moment."""
    while True:
        wrong = look(*words)
        if not wrong or time.monotonic() > until:
            return wrong
        time.sleep(0.5)


def listen(port, done):
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    server = socket.create_server(("", port), family=family, dualstack_ipv6=both)
    while True:
        connection, _ = server.accept()
        with connection:
            connection.settimeout(ASK_SECONDS)
            try:
                connection.sendall(b"ok")
                if port == OPEN and connection.recv(3) == b"bye":
                    done.set()
            except OSError:
                pass


def serve(asked):
    done = threading.Event()
    for port in (OPEN, NO_INGRESS, NO_EGRESS):
        threading.Thread(target=listen, args=(port, done), daemon=True).start()
    until = time.monotonic() + PATIENCE_SECONDS
    found = {"dns": at_last(resolved, [asked["dns"]], until)}
    found.update({name: at_last(reached, address, until) for name, address in asked["reach"].items()})
    found.update({name: at_last(answered, [url], until) for name, url in asked["answer"].items()})
    done.wait(SERVE_SECONDS)
    return found


def ask(asked):
    server, until = asked["server"], time.monotonic() + PATIENCE_SECONDS
    while True:
        ports = (("open", OPEN), ("ingress", NO_INGRESS), ("egress", NO_EGRESS))
        found = {name: connected(server, port) for name, port in ports}
        if found == {"open": True, "ingress": False, "egress": False} or time.monotonic() > until:
            break
        time.sleep(0.5)
    try:
        with socket.create_connection((server, OPEN), ASK_SECONDS) as connection:
            connection.sendall(b"bye")
            connection.recv(2)
    except OSError:
        pass
    return found


def main():
    asked = json.loads(os.environ["ASKED"])
    found = ask(asked) if "server" in asked else serve(asked)
    Path("/dev/termination-log").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
