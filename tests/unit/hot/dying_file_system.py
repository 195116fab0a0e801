"""A file system that takes the process with it, after so many operations."""

from tests.unit.hot.faulty_file_system import FaultyFileSystem


class Killed(BaseException):
    """The process is gone."""


class DyingFileSystem(FaultyFileSystem):
    """After `steps_left` operations the process is gone, and does nothing more."""

    steps_left: int | None = None

    def _step(self, operation: str, path: str) -> None:
        if self.steps_left is not None:
            if self.steps_left == 0:
                raise Killed
            self.steps_left -= 1
        super()._step(operation, path)
