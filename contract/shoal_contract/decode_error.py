"""Names the error that parsing raises on bytes that are no message: protobuf's own, for modules that know only our
messages."""

from google.protobuf.message import DecodeError

__all__ = ["DecodeError"]
