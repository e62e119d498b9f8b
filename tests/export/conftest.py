from tests.evaluation.conftest import _one_thread, make_run  # noqa: F401
