"""What a build needs from outside, without downloading anything."""

_BUILD = """
load("@bazel_tools//tools/python:toolchain.bzl", "py_runtime_pair")

py_runtime(
    name = "runtime",
    interpreter_path = "{interpreter}",
    python_version = "PY3",
)

py_runtime_pair(
    name = "runtimes",
    py3_runtime = ":runtime",
)

toolchain(
    name = "toolchain",
    toolchain = ":runtimes",
    toolchain_type = "@bazel_tools//tools/python:toolchain_type",
)
"""

def _make_env_python_impl(repository_ctx):
    root = repository_ctx.path(Label("//:WORKSPACE")).dirname
    interpreter = root.get_child(".venv").get_child("bin").get_child("python")
    repository_ctx.file("BUILD", _BUILD.format(interpreter = interpreter))

# Only names the interpreter: queries work without it, builds and tests need
# `make env` first.
make_env_python = repository_rule(
    implementation = _make_env_python_impl,
    local = True,
)

def _written_repository_impl(repository_ctx):
    for path, content in repository_ctx.attr.files.items():
        repository_ctx.file(path, content)

_written_repository = repository_rule(
    implementation = _written_repository_impl,
    attrs = {"files": attr.string_dict(mandatory = True)},
)

def _built_in_rules(names):
    return "".join(["{0} = native.{0}\n".format(name) for name in names])

def tools_without_download():
    """Stands in for what Bazel 4 would download for any build of Python.

    It describes its own C++ and Java toolchains, at which it looks though there
    is no C++ or Java here, by rules from repositories of their own; those built
    into Bazel have the same names. And every test could be asked for coverage.
    """
    _written_repository(
        name = "rules_cc",
        files = {
            "cc/BUILD": "",
            "cc/defs.bzl": _built_in_rules([
                "cc_binary",
                "cc_library",
                "cc_test",
                "cc_toolchain",
                "cc_toolchain_suite",
            ]),
        },
    )
    _written_repository(
        name = "rules_java",
        files = {
            "java/BUILD": "",
            "java/defs.bzl": _built_in_rules([
                "java_binary",
                "java_import",
                "java_library",
                "java_runtime",
                "java_toolchain",
            ]),
        },
    )
    _written_repository(
        name = "remote_coverage_tools",
        files = {"BUILD": """
filegroup(
    name = "coverage_report_generator",
    visibility = ["//visibility:public"],
)
"""},
    )
