"""A web application at an address of this machine, until it is interrupted."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from typing import Any

from holdfast.errors import InputError, MissingExtraError

GRACE_S = 3
"""Seconds that answers under way have when the server ends."""


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens at an address; port 0 is any that is free.

    Raises:
        InputError: if it is in use, not allowed, or not of this machine.
    """
    if not 0 <= port <= 65_535:
        raise InputError(
            "invalid port", code="unknown-name", found=str(port), expected="0 to 65535"
        )
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return socket.create_server(address[:2], family=family)
    except socket.gaierror as error:
        raise InputError(
            "host not found", code="unknown-name", found=host, remedy="correct --host"
        ) from error
    except OSError as error:
        remedy = "choose another --host or --port"
        if error.errno == errno.EADDRINUSE:
            remedy = "if it runs there already: open it, or choose another --port"
        raise InputError(
            "the address cannot be bound",
            code="address-in-use",
            found=f"{host}, port {port}: {error.strerror or error}",
            remedy=remedy,
        ) from error


def run(
    app: Any, listener: socket.socket, host: str, on_start: Callable[[str], None], extra: str
) -> None:
    """Serve an ASGI application until Ctrl-C or SIGTERM.

    Args:
        app: the application.
        listener: of `listen`.
        host: as the address names it.
        on_start: called with the address when it can be opened.
        extra: what installs the server.
    """
    try:
        import uvicorn
    except ModuleNotFoundError as error:
        raise MissingExtraError(str(error.name), extra) from error
    config = uvicorn.Config(
        app,
        lifespan="on",
        timeout_graceful_shutdown=GRACE_S,
        log_level="warning",
        access_log=False,
        server_header=False,
    )
    port = listener.getsockname()[1]
    on_start(f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/")
    try:
        uvicorn.Server(config).run(sockets=[listener])
    except KeyboardInterrupt:  # uvicorn ends the answers under way, then raises it again
        return
