"""Chunks read by a thread while those before them are worked on.

The thread is at most a few chunks ahead. What goes wrong in it is raised where the chunks are taken, and it
ends with the loop that takes them: when that is left early, by an error or by Ctrl-C, the thread stops after
the chunk that it is reading.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from queue import Empty, Queue
from typing import Any

DEPTH = 2  # chunks that wait
_CHUNK, _ERROR, _END = range(3)
_PATIENCE = 0.05  # seconds between two looks at whether the thread has ended


def read_ahead(read: Callable[[], Iterator[Any]], depth: int = DEPTH) -> Iterator[Any]:
    """The chunks of one reading, in their order.

    Args:
        read: begins a reading; called and run in the thread.
        depth: most chunks that wait to be taken; the thread holds one more.

    Yields:
        The chunks.

    Raises:
        BaseException: what ``read`` raised.
    """
    waiting: Queue = Queue(maxsize=depth)
    left, ended = threading.Event(), threading.Event()

    def work() -> None:
        try:
            for chunk in read():
                if left.is_set():
                    return
                waiting.put((_CHUNK, chunk))
                del chunk
        except BaseException as error:  # raised where the chunks are taken
            waiting.put((_ERROR, error))
        else:
            waiting.put((_END, None))
        finally:
            ended.set()

    thread = threading.Thread(target=work, name="reading ahead", daemon=True)
    try:
        thread.start()  # in here, for it may be interrupted when the thread runs already
        while True:
            kind, value = waiting.get()
            if kind == _END:
                return
            if kind == _ERROR:
                raise value
            yield value
            del value  # or one chunk more would be held
    finally:
        left.set()
        while not ended.wait(_PATIENCE):
            with suppress(Empty):
                waiting.get_nowait()
        thread.join()
