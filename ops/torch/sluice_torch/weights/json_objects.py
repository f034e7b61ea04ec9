"""Reads JSON objects of files that may be damaged."""

import json


class Once(dict):
    """An object of JSON, and a name that it has twice, or None: readers of JSON take the last one."""

    def __init__(self, pairs):
        super().__init__(pairs)
        self.doubled = None
        if len(self) < len(pairs):
            names = [name for name, _ in pairs]
            self.doubled = next(name for name in names if names.count(name) > 1)


def read_object(text: bytes, error: str) -> Once:
    """The object; its objects are Once, too. ValueError, with the message `error`: something else, or nested too deeply."""
    try:
        found = json.loads(text, object_pairs_hook=Once)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, Once):
        raise ValueError(error)
    return found


def is_size(value) -> bool:
    """Whether a value of JSON can be a size or an offset."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62
