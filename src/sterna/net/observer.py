"""Asking a broker about itself, from outside the network."""

import socket
from collections.abc import Iterator
from os import getpid
from time import monotonic
from typing import Any, Self

from sterna.errors import NotConnectedError, SternaError
from sterna.net.address import Address
from sterna.wire.codec import MalformedError
from sterna.wire.frames import (
    VERSION,
    Answer,
    Ask,
    Control,
    Hello,
    Ping,
    Pong,
    Refusal,
    Role,
    Splitter,
    agree,
    control,
    decode_control,
    is_control,
)

ANSWER_BYTES_MAX = 2**30
"""A broker reports all its clients in one frame."""

_READ_BYTES = 2**16


def ask(url: str, what: str, *, client: str = "", timeout_s: float = 5.0) -> Any:
    """What a broker answers to `status`, `topology` or `queues`, or to `kick` with a client."""
    with Observer(url, timeout_s=timeout_s) as observer:
        return observer.ask(what, client=client)


def clients_of(url: str, *, timeout_s: float = 5.0) -> tuple[str, list[dict[str, Any]]]:
    """The name of a broker and its clients, each with its subscriptions; asked for in parts."""
    found: dict[str, dict[str, Any]] = {}
    start: int | None = 0
    name = ""
    with Observer(url, timeout_s=timeout_s) as observer:
        while start is not None:
            answer = observer.ask("clients", start=start)
            found |= {client["name"]: client for client in answer["clients"]}
            name, start = answer["at"], answer["following"]
    return name, list(found.values())


class Observer:
    """A connection to a broker, for questions."""

    def __init__(self, url: str, *, timeout_s: float = 30.0) -> None:
        self._url = url
        self._address = Address.from_url(url)
        self._timeout_s = timeout_s
        self._ours = Hello(versions=(VERSION, VERSION), role=Role.OBSERVER, node=f"ask-{getpid()}")

    def __enter__(self) -> Self:
        try:
            self._socket = socket.create_connection(self._address, self._timeout_s)
        except OSError as error:
            raise self._nobody(error) from None
        self._heard = _heard(self._socket)
        self._to_say = control(self._ours)
        return self

    def __exit__(self, *raised: object) -> None:
        self._socket.close()

    def ask(
        self,
        what: str,
        *,
        start: int = 0,
        end: int = 0,
        client: str = "",
        details: bool = False,
    ) -> Any:
        """The broker's answer.

        `start` and `end` go with `facts`, `client` with `kick`, and `details` with `journal`.
        """
        asked = Ask(what=what, start=start, end=end, client=client, details=details)
        try:
            self._socket.sendall(self._to_say + control(asked))
            self._to_say = b""
            return self._answer(what, monotonic() + self._timeout_s)
        except MalformedError as error:
            raise SternaError(
                f"what answers at {self._url} is no broker of this version: {error}"
            ) from None
        except OSError as error:
            raise self._nobody(error) from None

    def _answer(self, what: str, deadline: float) -> Any:
        for said in self._heard:
            match said:
                case Hello():
                    agree(self._ours, said)
                case Refusal():
                    refused = f"the broker at {self._url} refuses to answer: {said.reason}"
                    if said.final:
                        raise SternaError(refused)
                    raise NotConnectedError(refused, brokers=(self._url,))
                case Ping():
                    self._socket.sendall(control(Pong()))
                case Answer(what=answered) if answered == what:
                    return said.answer
                case _:
                    pass
            if monotonic() > deadline:  # It is there, and sends other frames all the time.
                raise TimeoutError("no answer in time")
        raise NotConnectedError(
            f"the broker at {self._url} hung up before it answered; ask again",
            brokers=(self._url,),
        )

    def _nobody(self, error: OSError) -> NotConnectedError:
        return NotConnectedError(
            f"no broker answers at {self._url} ({error.strerror or error}); "
            "is one running (`sterna up`)?",
            brokers=(self._url,),
        )


def _heard(connection: socket.socket) -> Iterator[Control]:
    """The frames of the other side, until it closes the connection."""
    splitter = Splitter(ANSWER_BYTES_MAX)
    while data := connection.recv(_READ_BYTES):
        for body in splitter.feed(data)[1]:
            if is_control(body):
                yield decode_control(body)
