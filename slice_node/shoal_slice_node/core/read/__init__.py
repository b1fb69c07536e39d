"""Answers from the tables: lists, describe and peek, walks; nothing is changed."""
