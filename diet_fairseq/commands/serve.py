"""``diet-fairseq serve MODEL``: translates over HTTP until it is told to stop."""

import logging
import math
import signal
import socket
from argparse import ArgumentParser, Namespace
from contextlib import suppress

from ..arguments import at_least
from ..errors import UserError, one_line
from .translate import add_model_arguments, loaded

#: seconds that clients have at the end to read their answers
READING = 5


def add_arguments(parser: ArgumentParser) -> None:
    add_model_arguments(parser)
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address to listen at (%(default)s: this machine only)")
    add("--port", type=int, default=5000, help="0: any that is free (%(default)s)")
    add("--max-tokens", type=at_least(1), default=4000, help="subwords in a batch (%(default)s)")
    limits = parser.add_argument_group("limits")
    add = limits.add_argument
    add(
        "--max-waiting",
        type=at_least(1),
        default=2000,
        help="lines of all requests, else 503 (%(default)s)",
    )
    add("--max-body", type=at_least(1), default=10_000_000, help="bytes, else 413 (%(default)s)")
    add(
        "--max-characters", type=at_least(1), default=5000, help="in a line, else 400 (%(default)s)"
    )
    add(
        "--max-seconds",
        type=at_least(0.0),
        default=60,
        help="for a request, else 504 (%(default)s)",
    )


def run(args: Namespace) -> None:
    import uvicorn

    from ..inference.service.app import Limits, application

    listening = _listening(args.host, args.port)
    translator = loaded(args)
    limits = Limits(args.max_body, args.max_characters, args.max_waiting, args.max_seconds)
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    config = uvicorn.Config(
        application(translator, limits),
        log_config=None,
        access_log=False,
        lifespan="on",
        timeout_graceful_shutdown=math.ceil(limits.seconds) + READING,
    )
    host, port = listening.getsockname()[:2]
    print(
        f"translating {translator.source_lang} to {translator.target_lang} at "
        f"http://{f'[{host}]' if ':' in host else host}:{port} (Ctrl-C ends it)",
        flush=True,
    )
    # uvicorn ends its work first and then raises the signal again, which has done all it should.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    server = uvicorn.Server(config)
    server.run(sockets=[listening])
    unread = len(server.server_state.connections)
    with suppress(BrokenPipeError):
        print(
            f"stopped: {unread} of the answers had not been read"
            if unread
            else "stopped: all that was asked for is answered",
            flush=True,
        )


def _listening(host: str, port: int) -> socket.socket:
    """An open socket, before the model is loaded in vain."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(
            f"--host {one_line(host)} --port {port} can't be listened at ({one_line(reason)}): "
            "name another port or address"
        ) from error
