import pytest

from tff_algos.core import errors
from tff_algos.privacy import mechanism

_ADAPTIVE = mechanism.AdaptiveClippingConfig(target_quantile=0.5, share=0.05)


@pytest.mark.parametrize('has_counts', [False, True])
@pytest.mark.parametrize(
  'adaptive', [mechanism.AdaptiveClippingConfig(), _ADAPTIVE]
)
def test_parts_have_the_joint_noise_multiplier(has_counts, adaptive):
  config = mechanism.PrivacyConfig(
    noise_multiplier=1.5, adaptive_clipping=adaptive, count_share=0.2
  )
  noise = mechanism.split(config, has_counts)
  # Multipliers are deviations over sensitivities.
  multipliers = [noise.contributions]
  multipliers += [noise.counts] if has_counts else []
  multipliers += [noise.below / 0.5] if adaptive is _ADAPTIVE else []
  assert sum(z**-2 for z in multipliers) == pytest.approx(1.5**-2)
  assert bool(noise.counts) == has_counts
  assert bool(noise.below) == (adaptive is _ADAPTIVE)
  if has_counts:
    assert noise.counts == pytest.approx(1.5 / 0.2**0.5)


@pytest.mark.parametrize(
  ('options', 'text'),
  [
    ({'delta': 0.0}, 'delta'),
    ({'sampling_prob': 1.5}, 'sampling_prob'),
    ({'delta': 1e-15}, 'delta must be a finite number >= 1e-12'),
    ({'clip_norm': 0.0}, 'clip_norm'),
    ({'clip_norm': 1e39}, 'privacy.clip_norm must be at most 1e.06'),
    ({'min_count': 0.5}, 'min_count'),
    ({'count_share': 1.0}, 'share'),
    ({'rounds_per_epoch': -1}, 'rounds_per_epoch'),
    ({'rounds_per_epoch': 4, 'sampling_prob': 0.5}, 'once an epoch'),
    (
      {'rounds_per_epoch': 4, 'adaptive_clipping': _ADAPTIVE},
      'must be the same',
    ),
    ({'count_share': 0.99, 'adaptive_clipping': _ADAPTIVE}, 'below 1'),
  ],
)
def test_options_out_of_range_are_refused(options, text):
  with pytest.raises(errors.ConfigError, match=text):
    mechanism.PrivacyConfig(**options)


def test_a_solved_noise_depends_on_the_rounds_and_a_given_one_does_not():
  solved = mechanism.PrivacyConfig(target_epsilon=2.0)
  given = mechanism.PrivacyConfig(noise_multiplier=1.0, target_epsilon=2.0)
  assert solved.identity(3) != solved.identity(4)
  assert given.identity(3) == given.identity(4)
  kept = mechanism.PrivacyConfig(target_epsilon=2.0, num_rounds=9)
  assert kept.identity(3) == kept.identity(4)
  assert mechanism.PrivacyConfig().identity(3) == {}
  # With a given noise, a target decides on the end alone.
  assert given.identity(3) == (
    mechanism.PrivacyConfig(noise_multiplier=1.0).identity(3)
  )


def test_a_share_that_is_not_used_is_free():
  assert mechanism.PrivacyConfig(count_share=0.995).count_share == 0.995


def test_an_adaptive_rate_that_overflows_is_refused():
  with pytest.raises(errors.ConfigError, match='learning_rate must be at most'):
    mechanism.AdaptiveClippingConfig(learning_rate=1e6)
