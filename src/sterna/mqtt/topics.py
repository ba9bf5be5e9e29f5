"""The rules for topic names and topic filters."""


def why_no_topic_name(text: str) -> str | None:
    """What is wrong with a topic name; None if nothing is."""
    raise NotImplementedError


def why_no_topic_filter(text: str) -> str | None:
    """What is wrong with a topic filter, `$share/…` included; None if nothing is."""
    raise NotImplementedError


def shared(topic_filter: str) -> tuple[str, str] | None:
    """The share name and the topic filter behind it; None if it is not a shared subscription."""
    raise NotImplementedError
