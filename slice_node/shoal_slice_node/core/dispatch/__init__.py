"""Decides which session gets which message now. In memory, only for consumed queues; everything here may be lost.

Events in (a session attached, a record was applied, an ack came, the transport has room), deliveries out.
"""
