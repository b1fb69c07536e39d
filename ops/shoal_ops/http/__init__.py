"""The HTTP gateway, the administration over HTTP and its page: `shoal admin`. See ../../DESIGN.md."""
