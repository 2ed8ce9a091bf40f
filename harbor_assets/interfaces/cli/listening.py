"""Whether a port is free to listen on, asked before anything is started."""

import socket

from harbor_assets.domain.errors import Refused
from harbor_assets.interfaces.cli.output import command


def check_free(host: str, port: int, name: str) -> None:
    """Raises `Refused` if no port can be opened at that address. `name`: the command that is to listen there.

    Servers find out late: Dagster after some seconds, with a traceback, uvicorn when everything else was said.
    """
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does
            probe.bind(address)
    except PermissionError as error:
        raise Refused(f"This user may not listen on port {port} of {host}; choose one from 1024 up") from error
    except OSError as error:
        if isinstance(error, socket.gaierror) or "assign" in str(error.strerror):
            raise Refused(f"{host} is no address of this machine: {error.strerror}; leave --host out") from error
        other = command(name, "--port", str(port + 1 if port < 65535 else 3000))
        raise Refused(f"Port {port} of {host} is taken by another program; choose another: {other}") from error
