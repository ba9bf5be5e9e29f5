"""The root of all errors that Sterna raises, and those that need no extra to be caught."""

from typing import Any


class SternaError(Exception):
    """The root of all errors that Sterna raises; the message says what to do."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.args, vars(self))


def _again(kind: type[SternaError], args: tuple[Any, ...], fields: dict[str, Any]) -> SternaError:
    """An error that was copied, or came from another process.

    The constructor of its class is not called: what it composes a message from is not kept.
    """
    error = kind.__new__(kind)
    super(SternaError, error).__init__(*args)
    vars(error).update(fields)
    return error


class MissingExtraError(SternaError, ImportError):
    """A library is not installed that an extra brings; the message says what to install."""

    def __init__(self, message: str, *, extra: str = "") -> None:
        super().__init__(message)
        self.extra = extra
        """The extra of the package `sterna`: `broker`, `pipeline` or `plots`."""


class NotConnectedError(SternaError):
    """No broker answers, or none of the list does, or not the one that was asked for."""

    def __init__(
        self, message: str, *, brokers: tuple[str, ...] = (), instead: str | None = None
    ) -> None:
        super().__init__(message)
        self.brokers = brokers
        """The addresses that were tried, in this order."""
        self.instead = instead
        """The name of the broker where the client is instead; None if it is nowhere."""

    @property
    def broker(self) -> str | None:
        """The address that was tried first."""
        return self.brokers[0] if self.brokers else None


class ClosedError(SternaError):
    """The client is closed, by the application or because a broker has refused it for good."""

    def __init__(self, message: str, *, broker: str | None = None) -> None:
        super().__init__(message)
        self.broker = broker
        """The broker that has refused the client, if one has."""


class UnconfirmedError(SternaError):
    """Whether a subscription is known everywhere cannot be said: some nodes are too old to ask."""

    def __init__(self, message: str, *, nodes: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.nodes = nodes
        """The brokers, and the publishers that discard what nobody wants, that could not be asked.
        What comes from there may be missed for some milliseconds yet."""


class DiscardedError(SternaError):
    """An event was discarded before a broker had it: too many waited for a connection, or another
    program has published under the same name meanwhile.
    """

    def __init__(self, message: str, *, limit: int | None = None) -> None:
        super().__init__(message)
        self.limit = limit
        """How many events may wait for a connection."""


class TooLargeError(SternaError, ValueError):
    """Something does not fit in a frame that the broker accepts."""

    def __init__(self, message: str, *, size: int = 0, limit: int = 0) -> None:
        super().__init__(message)
        self.size = size
        """About how many bytes it has."""
        self.limit = limit
        """How many bytes it may have."""


class EventTooLargeError(TooLargeError):
    """An event is larger than what the broker accepts."""


class SubscriptionTooLargeError(TooLargeError):
    """All subscriptions of a client together are larger than what a broker accepts."""


class TimedOutError(SternaError, TimeoutError):
    """What was waited for has not happened in time; it may still happen."""

    def __init__(self, message: str, *, timeout: float | None = None) -> None:
        super().__init__(message)
        self.timeout = timeout
        """How many seconds it was waited for."""


class StartError(SternaError):
    """The broker cannot start; the message says what to do."""


class NetworkRunsError(SternaError):
    """Another process runs the network of a directory."""

    def __init__(self, message: str, *, pid: int | None = None) -> None:
        super().__init__(message)
        self.pid = pid
        """The process that runs it, if that is known."""


class JournalFailedError(SternaError):
    """The journal could not be written and takes no more; says why and what to do."""


class SegmentDamagedError(SternaError, ValueError):
    """A file of the journal is cut off or changed; what stood before that place is intact."""


class FactsMissingError(SternaError):
    """A broker no longer has, or cannot read, facts that were asked for."""

    def __init__(self, message: str, following: int) -> None:
        super().__init__(message)
        self.following = following
        """The position with which it can go on."""


class FilterWarning(UserWarning):
    """A filter is valid, but hardly what its author means; the message says what to write."""


class ArchiveError(SternaError):
    """The archive cannot be read; says why and what to do."""
