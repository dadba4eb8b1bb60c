"""The declarations of all algorithms are in the contract test."""

from tff_algos.core import carrying


def test_newcomers_are_initial_unless_an_algorithm_says_otherwise():
  carry = carrying.Carry({'weights': carrying.KEEP})
  assert carry.newcomer_rows('old', 'initial') == 'initial'
  assert carry.newcomer_state is None


def test_every_rule_has_a_name_of_its_own():
  names = {rule.name: rule for rule in carrying.Rule}
  assert {name: getattr(carrying, name) for name in names} == names
