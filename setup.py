"""What pyproject.toml cannot say: an installation compiles the C kernel.

It never fails for want of a compiler: without one it says so, and `bireme build` tries again.
"""

from __future__ import annotations

import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

sys.path.insert(0, str(Path(__file__).parent / "generator"))

from bireme.errors import EmitError
from bireme.native.flags import ARCHITECTURES, host_architecture, library_name
from bireme.native.library import library_for

_NATIVE = "bireme_runtime/native"


def _make(sources: Path, target: Path) -> None:
    """Put the library for this machine into a folder, or say why there is none; whatever happens."""
    arch = host_architecture()
    place = target / library_name(arch)
    try:
        if sys.platform != "linux":
            raise EmitError("kernel", "is for Linux only", "`bireme build` makes it for the serving image")
        library = library_for(arch, sources)
        # In an editable installation the sources' own folder is the target.
        if not place.is_file() or place.read_bytes() != library.content:
            place.write_bytes(library.content)
        line = library.summary()
    except EmitError as error:
        place.unlink(missing_ok=True)
        line = f"no kernel: {error.where}: {error.message}. {error.hint}"
    except Exception as error:  # the package is whole without the library
        line = f"no kernel: {type(error).__name__}: {error}"
    print(f"bireme: {line}", file=sys.stderr)


class BuildWithKernel(build_py):
    """Copies the Python files, then makes the library: beside the sources if the installation is editable."""

    def run(self) -> None:
        """Build."""
        super().run()
        sources = Path("backends/python") / _NATIVE
        target = sources if self.editable_mode else Path(self.build_lib) / _NATIVE
        # A build folder may hold what an earlier build left there.
        if not self.editable_mode:
            target.mkdir(parents=True, exist_ok=True)
            for arch in ARCHITECTURES:
                (target / library_name(arch)).unlink(missing_ok=True)
        _make(sources, target)


class WheelWithKernel(bdist_wheel):
    """A wheel that holds a library is one for this platform, but for any Python 3."""

    def get_tag(self) -> tuple[str, str, str]:
        """(Python, ABI, platform)."""
        tag = super().get_tag()
        built = self.get_finalized_command("build_py").build_lib
        if not any(Path(built, _NATIVE).glob("libbireme-*.so")):
            return tag
        return "py3", "none", f"linux_{host_architecture()}"


setup(cmdclass={"build_py": BuildWithKernel, "bdist_wheel": WheelWithKernel})
