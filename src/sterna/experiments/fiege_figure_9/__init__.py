"""Fiege, Figure 9: messages with location-dependent filters against flooding.

A tree of 364 brokers; 2430 producers at its 243 leaves publish once a second about one of 100
places; a consumer at the root walks about. The links of the leaves and of the consumer are slow.

The paper charges every link with all events that its filter would let through, wherever the
consumer is ("restricted flooding"). In a network that routes, an event goes only towards the
consumer. So there are three numbers here: the formula; the filters of a running network, charged
like the paper does; and the messages that really went over the links.
"""
