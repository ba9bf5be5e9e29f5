"""Topic aliases of one end for the other: numbers that stand for topics. (MQTT 5.0, 3.3.2.3.4)"""

from collections.abc import Iterable

TOPIC_BYTES_MIN = 4
"""An alias takes three bytes more, so it is of no use for a shorter topic."""


class TopicAliases:
    """The aliases that a sender uses on one connection: the first topics have them, for good.

    Packets may be encoded in another order than they are sent in. So a topic is left out only
    once a packet with topic and alias is known to be on its way.
    """

    def __init__(self, maximum: int) -> None:
        """`maximum` is how many aliases the receiver takes."""
        self._maximum = maximum
        self._aliases: dict[str, int] = {}
        self._sent: set[str] = set()

    def of(self, topic: str) -> tuple[int, bool]:
        """The alias of a topic, or 0; and whether the topic has to be sent with it."""
        alias = self._aliases.get(topic)
        if alias is None:
            if len(self._aliases) >= self._maximum or len(topic) < TOPIC_BYTES_MIN:
                return 0, True
            alias = self._aliases[topic] = len(self._aliases) + 1
        return alias, topic not in self._sent

    def sent(self, topics: Iterable[str]) -> None:
        """Packets with these topics and their aliases are on their way."""
        self._sent.update(topics)
