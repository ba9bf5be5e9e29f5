"""Asking a broker about itself, from outside of the network."""

import socket
from collections.abc import Iterator
from os import getpid
from typing import Any

from sterna.net.address import Address
from sterna.net.errors import NotConnectedError, SternaError
from sterna.wire.codec import MalformedError
from sterna.wire.frames import (
    VERSION,
    Answer,
    Ask,
    Control,
    Hello,
    Refusal,
    Role,
    Splitter,
    agree,
    control,
    decode_control,
    is_control,
)

ANSWER_BYTES_MAX = 2**30
"""A broker tells of all its clients in one frame."""

_READ_BYTES = 2**16


def ask(url: str, what: str, *, timeout_s: float = 5.0) -> Any:
    """What a broker answers to `status`, `topology` or `queues`."""
    address = Address.from_url(url)
    try:
        with socket.create_connection(address, timeout_s) as connection:
            ours = Hello(versions=(VERSION, VERSION), role=Role.OBSERVER, node=f"ask-{getpid()}")
            connection.sendall(control(ours) + control(Ask(what=what)))
            for said in _heard(connection):
                match said:
                    case Hello():
                        agree(ours, said)
                    case Refusal():
                        raise SternaError(f"the broker at {url} refuses to answer: {said.reason}")
                    case Answer(what=answered) if answered == what:
                        return said.answer
                    case _:
                        pass
    except MalformedError as error:
        raise SternaError(f"what answers at {url} is no broker of this version: {error}") from None
    except OSError as error:
        raise NotConnectedError(
            f"no broker answers at {url} ({error.strerror or error}); is one running (`sterna up`)?"
        ) from None
    raise NotConnectedError(f"the broker at {url} hung up before it answered; ask again")


def _heard(connection: socket.socket) -> Iterator[Control]:
    """What the other side says, until it hangs up."""
    splitter = Splitter(ANSWER_BYTES_MAX)
    while data := connection.recv(_READ_BYTES):
        for body in splitter.feed(data)[1]:
            if is_control(body):
                yield decode_control(body)
