"""Holds the rules of the client: no event loop, transport, clock or randomness.

Belongs here: what is gathered into frames, numbered, repeated, remembered and merged. It is told the time, and answers
waiters (waiters.py), which its callers make. Not here: whatever awaits or opens something (the modules beside this
folder), bytes on a connection (../transport).
"""
