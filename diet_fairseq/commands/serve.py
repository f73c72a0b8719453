"""``diet-fairseq serve MODEL``: translation over HTTP, until a signal ends it."""

import errno
import logging
import signal
import socket
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from contextlib import suppress

from ..errors import UserError, one_line
from .arguments import add_model, add_search_limits, at_least, integer_between
from .translate import load_translator


def add_arguments(parser: ArgumentParser) -> None:
    add_model(parser)
    add_search_limits(parser)
    add = parser.add_argument
    add("--host", default="127.0.0.1",
        help="address to listen on (default: %(default)s, this machine only)")  # fmt: skip
    add("--port", type=integer_between(0, 65535), default=5000,
        help="port; 0 chooses a free port (default: %(default)s)")  # fmt: skip
    add("--host-names", type=_host_name, nargs="+", default=[], metavar="NAME",
        help="further host names and addresses besides localhost and --host; *.NAME allows "
             "subdomains, * allows any name")  # fmt: skip
    add = parser.add_argument_group("limits").add_argument
    add("--max-characters", type=at_least(1), default=5000,
        help="largest number of characters in a line; longer lines get status 400 (default: "
             "%(default)s)")  # fmt: skip
    add("--max-seconds", type=at_least(0.0), default=60,
        help="time limit of a request in seconds, after which it gets status 504 (default: "
             "%(default)s)")  # fmt: skip


def run(args: Namespace) -> None:
    from ..translate.service.app import Limits, application
    from ..translate.service.server import Server

    listening = _listen(args.host, args.port)
    translator = load_translator(args)
    limits = Limits(characters=args.max_characters, seconds=args.max_seconds)
    for name in ("uvicorn.error", "python_multipart"):
        logging.getLogger(name).setLevel(logging.ERROR)  # no warnings of clients' errors
    host, port = listening.getsockname()[:2]
    address = f"[{host}]" if ":" in host else host
    app = application(translator, limits, [args.host, address, *args.host_names])
    server = Server(app, limits.seconds)
    # before uvicorn handles signals, and when it raises them again after the last response
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: setattr(server, "should_exit", True))
    count = sum(map(len, translator.targets.values()))
    others = f" (and {count - 1:,} other directions)" if count > 1 else ""
    print(
        f"translating {translator.source_lang} to {translator.target_lang}{others} at "
        f"http://{address}:{port} (Ctrl-C ends it)",
        flush=True,
    )
    server.run(sockets=[listening])
    with suppress(BrokenPipeError):
        print("stopped", flush=True)


def _host_name(text: str) -> str:
    """A host name, or a pattern that Starlette supports."""
    if text != "*" and "*" in text.removeprefix("*."):
        raise ArgumentTypeError(f"must be NAME, *.NAME or *, but is {text}")
    return text


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket, opened before the model is loaded so that errors come early."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)
    except (OSError, UnicodeError) as error:
        if getattr(error, "errno", None) == errno.EADDRINUSE:
            raise UserError(
                f"--port {port} is already in use on {host}: choose another port, or 0 for a free "
                "one"
            ) from error
        reason = (getattr(error, "strerror", None) or str(error)).partition(" (while ")[0]
        raise UserError(
            f"can't listen on --host {one_line(host)} --port {port} ({one_line(reason)}): choose "
            "another address or port"
        ) from error
