"""What each variant of the search for the past costs, and what it finds. (Cilia et al., 5.3, 5.4)

Subscribers come one after the other to three brokers of a district; publishers are behind a chain
of other brokers, each at a broker of its own. Every second subscriber asks for the past.
"""
