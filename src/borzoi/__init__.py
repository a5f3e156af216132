"""Borzoi: a persistent message streaming platform that speaks Apache Iggy's wire protocols."""

__version__ = "0.1.0"
