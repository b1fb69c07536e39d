"""Real events driven through a cluster, and every queue's content compared with what the events say."""
