"""The verbs of a change: one module each, with what it checks, what it costs, how it is applied and what it names; and
the engine, which applies every kind of record."""
