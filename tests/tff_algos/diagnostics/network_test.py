"""Tests of the checks of the loopback network."""

import socket

import pytest

from tff_algos.diagnostics import network


def test_loopback_works_here():
  assert network.check_port().status == 'ok'


def test_loopback_that_is_forbidden(monkeypatch):
  def refuse(*unused_args, **unused_kwargs):
    raise PermissionError('not permitted')

  monkeypatch.setattr(socket, 'create_server', refuse)
  found = network.check_port()
  assert (found.status, found.found) == ('fail', 'not permitted')


@pytest.mark.parametrize(
  ('environment', 'status'),
  [
    ({}, 'ok'),
    ({'http_proxy': ''}, 'ok'),
    ({'http_proxy': 'http://p'}, 'warn'),
    ({'HTTPS_PROXY': 'http://p', 'NO_PROXY': 'localhost'}, 'warn'),
    ({'HTTPS_PROXY': 'http://p', 'NO_PROXY': 'localhost, 127.0.0.1'}, 'ok'),
    ({'grpc_proxy': 'http://p', 'no_proxy': '*'}, 'ok'),
  ],
)
def test_proxies(environment, status):
  assert network.check_proxies(environment).status == status


def test_proxy_passwords_are_not_shown():
  found = network.check_proxies({'http_proxy': 'http://me:secret@p'})
  assert 'secret' not in found.found
