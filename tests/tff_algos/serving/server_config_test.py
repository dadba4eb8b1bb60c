from tff_algos.serving import server_config


def test_by_default_only_this_machine_is_served():
  config = server_config.ServerConfig()
  assert config.host == '127.0.0.1'
  # TensorFlow Serving's ports.
  assert (config.rest_api_port, config.port) == (8501, 8500)
