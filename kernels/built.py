"""What the implementations that launch one compiled program share."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

from tileops.kernels.compile import compile_program, launcher


class Buildable(Protocol):
    """Stands for a build identity: what goes into a build, and nothing else."""

    @property
    def arch(self) -> int:
        """Returns the arch to compile for, such as 90."""
        ...

    @property
    def index_bits(self) -> int:
        """Returns the width of index arithmetic: 32 or 64."""
        ...

    def program(self) -> Any:
        """Returns the device program."""
        ...


class Built:
    """Compiles the program of a build identity and keeps its launcher. Stands beside the interface among the bases."""

    own_barriers: ClassVar[bool] = False
    """The program places all its barriers itself."""

    def __init__(self, identity: Any) -> None:
        """Compiles for the identity's arch. Needs nvcc or TileLang's disk cache."""
        self.identity = identity
        self._launch = launcher(self.compile(identity))

    @classmethod
    def compile(cls, identity: Buildable) -> Any:
        """Returns TileLang's kernel object for a build identity. Needs no GPU."""
        return compile_program(
            identity.program,
            identity.arch,
            warp_matrix=True,
            index_bits=identity.index_bits,
            own_barriers=cls.own_barriers,
        )
