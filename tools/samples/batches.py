"""Rows in groups, since a tokenizer works on many texts at once."""

MAX_ROWS, MAX_CHARACTERS = 512, 1 << 20


def in_batches(items, size_of):
    batch, size = [], 0
    for item in items:
        batch.append(item)
        size += size_of(item)
        if len(batch) == MAX_ROWS or size >= MAX_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
