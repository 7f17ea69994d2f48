"""Queries as operators, and the SQL front end."""
