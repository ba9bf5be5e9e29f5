"""What can go wrong for an application."""


class SternaError(Exception):
    """Something that the application should know; the message says what to do."""


class NotConnectedError(SternaError):
    """No broker of the list answers."""


class ClosedError(SternaError):
    """The client is closed, by the application or because a broker has refused it for good."""


class DiscardedError(SternaError):
    """An event was given up before a broker had it: too many waited for a connection."""
