"""The rules for texts, topic names and topic filters (section 4.7 of both specifications)."""

from sterna.mqtt.packets import Version

TEXT_BYTES_MAX = 65535
"""How long a text is at most, as UTF-8."""

_SHARE = "$share/"


def why_no_topic_name(text: str) -> str | None:
    """What is wrong with a topic name; None if nothing is."""
    if not text:
        return "a topic name is empty: it has at least one character"
    if "+" in text or "#" in text:
        return "a topic name contains + or #, which only topic filters may"
    return None


def why_no_topic_filter(text: str, version: Version = Version.V5) -> str | None:
    """What is wrong with a topic filter; None if nothing is.

    3.1.1 knows no shared subscriptions: what begins with `$share/` is like any other filter there.
    """
    if version is Version.V5 and text.startswith(_SHARE):
        name, slash, text = text.removeprefix(_SHARE).partition("/")
        if not name or "+" in name or "#" in name:
            return "the share name of a shared subscription is empty, or contains + or #"
        if not slash or not text:
            return "a shared subscription has no topic filter: it is $share/NAME/FILTER"
    if not text:
        return "a topic filter is empty: it has at least one character"
    if "+" not in text and "#" not in text:
        return None
    levels = text.split("/")
    if any("#" in level for level in levels[:-1]) or ("#" in levels[-1] and levels[-1] != "#"):
        return "# stands anywhere but alone in the last level of a topic filter"
    if any("+" in level and level != "+" for level in levels):
        return "+ does not stand alone in its level of a topic filter"
    return None


def shared(topic_filter: str) -> tuple[str, str] | None:
    """The share name and the topic filter behind it; None if it is not a shared subscription."""
    if not topic_filter.startswith(_SHARE):
        return None
    name, _, rest = topic_filter.removeprefix(_SHARE).partition("/")
    return (name, rest) if name and rest else None
