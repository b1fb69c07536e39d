"""Provides HTTP as every Shoal server speaks it: one server, its bounds, its checks and its form of errors.

Needs uvicorn, h11 and starlette (extra `server`), so the client never imports it. Not here: what a path does.
"""
