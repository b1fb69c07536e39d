"""The pure node: what a node decides, told of time and of what is durable, without a loop, a clock or files."""
