"""The vocabulary of Borzoi: plain values, limits and errors. Imports nothing of the other layers."""
