"""What parsing raises on bytes that are no message: protobuf's own error, for those that know messages only."""

from google.protobuf.message import DecodeError

__all__ = ["DecodeError"]
