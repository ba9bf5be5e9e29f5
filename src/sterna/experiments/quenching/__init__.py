"""Whether quenching pays: bytes of events that are not sent, against bytes that announce to
publishers what is wanted. (Huang, 3.2)
"""
