"""Tests run by pytest."""

def py_tests(names, deps, **kwargs):
    """Makes a test of each `<name>_test.py`, run by pytest.

    Args:
      names: Paths of the test files.
      deps: Libraries that they need.
      **kwargs: Passed on to each py_test.
    """
    for name in names:
        native.py_test(
            name = name[:-len(".py")],
            srcs = [name, "//tests:bazel_main.py"],
            main = "//tests:bazel_main.py",
            args = ["$(rootpath %s)" % name],
            data = ["//:pyproject.toml"],
            deps = deps,
            **kwargs
        )
