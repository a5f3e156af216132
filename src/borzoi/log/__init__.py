"""Storage: batches in segments, their indexes, recovery, retention and consumer offsets."""
