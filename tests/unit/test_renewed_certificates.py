"""Certificates that were replaced are loaded in the end, whatever kept them from it at first."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.certificates import Authority, authority
from tiered.config.tls import ListenerTls, TlsMaterial
from tiered.tls import Reloaded, server_context

__all__ = ["authority"]


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """This process can open no file."""
    free = os.open(os.devnull, os.O_RDONLY)
    os.close(free)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_certificate_that_no_descriptor_was_left_for_is_loaded_later(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    shown = authority.sign("renewed")
    material = TlsMaterial(certificate_chain=str(shown.both))
    tls = ListenerTls(material=material)
    followed = Reloaded(lambda: server_context(tls), material, what="the listener")
    before = followed.current
    authority.sign("renewed")
    with no_descriptor_left():
        assert not followed.refresh()
        assert not followed.refresh()
    assert followed.current is before
    assert followed.refresh()
    assert followed.current is not before
    assert not followed.refresh()
    assert caplog.text.count("goes on with its certificates from before") == 1
