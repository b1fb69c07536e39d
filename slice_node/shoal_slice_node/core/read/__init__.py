"""Reads answers from the tables: lists, describe and peek, walks. Nothing is changed."""
