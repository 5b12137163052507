"""What a call of `fit` is read into, and what a method refuses, without a run."""

from unittest import mock

from inference import fit
from inference.fitting import front_door
from inference.methods import method_of

__all__ = ["check_method", "request_of"]


class Read(Exception):
    """The request, on the way out of `fit`."""


def _stop(request):
    raise Read(request)


def request_of(model, *data, **call):
    """The request of a call of `fit`, in the coordinates of the data."""
    try:
        with mock.patch.object(front_door, "inward", _stop):
            fit(model, *data, **call)
    except Read as read:
        return read.args[0]
    raise AssertionError("fit has not read its call")


def check_method(model, name):
    """Ask a method with its default settings whether it takes the fields of a model."""
    method = method_of(model, name)
    method.check(model, method.settings())
