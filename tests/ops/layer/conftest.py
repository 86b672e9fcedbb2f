"""Small ops with kernels for the CPU: every path of the op layer runs anywhere, with a real dispatcher and builds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import attrs
import pytest
import torch

from tileops import catalog
from tileops.backend import process
from tileops.backend.discovery import Discovery
from tileops.backend.registry import Registry
from tileops.backend.settlement import TargetStage
from tileops.manifest.loader import read_entries
from tileops.op import Op
from tileops.rules.callspec import CallSpec, call_spec
from tileops.rules.declaration import Declaration, Refusal
from tileops.rules.facts import choice, dim, flag
from tileops.rules.interface import KernelInterface
from tileops.uses import Uses

MANIFEST = """
AddFwdOp:
  ref_api: torch.add
  signature:
    forall: {M: Dim, N: Dim, T: "DType[float16 | float32]"}
    params:
      scale: {type: float, default: 1.0}
      sizes: {type: "list[int]", default: []}
    inputs:
      a: {dtype: T, shape: "[M, N]"}
      b: {dtype: T, shape: "[M, N]"}
      bias: {dtype: T, shape: "[N]", optional: true}
    outputs:
      d: {dtype: T, shape: "[M, N]"}
  workloads:
    - {label: small, M: 4, N: 8, dtypes: [{T: float32}]}
  roofline: {flops: "2 * M * N"}
SumFwdOp:
  ref_api: torch.sum
  signature:
    forall: {M: Dim, N: Dim, T: "DType[float32]"}
    params: {}
    inputs:
      x: {dtype: T, shape: "[M, N]"}
    outputs:
      y: {dtype: T, shape: "[M]", empty: 0}
  workloads:
    - {label: small, M: 4, N: 8, dtypes: [{T: float32}]}
  roofline: {flops: "M * N"}
SplitFwdOp:
  ref_api: torch.split
  signature:
    forall: {M: Dim, T: "DType[float32]"}
    params: {}
    inputs:
      x: {dtype: T, shape: "[M, M]"}
    outputs:
      y: {dtype: T, shape: "[M, M]"}
      z: {dtype: T, shape: "[M]"}
  workloads:
    - {label: small, M: 4, dtypes: [{T: float32}]}
  roofline: {flops: "M * M"}
BumpFwdOp:
  ref_api: torch.add
  signature:
    forall: {M: Dim, N: Dim, T: "DType[float32]"}
    params: {}
    inputs:
      x: {dtype: T, shape: "[M, N]", mutated: true}
    outputs:
      y: {dtype: T, shape: "[M, N]", same_as: x}
  workloads:
    - {label: small, M: 4, N: 8, dtypes: [{T: float32}]}
  roofline: {flops: "M * N"}
AccumulateFwdOp:
  ref_api: torch.add
  signature:
    forall: {M: Dim, N: Dim, T: "DType[float32]"}
    params:
      packed: {type: bool, default: false}
    inputs:
      x: {dtype: T, shape: "[M, N]"}
      total: {dtype: T, shape: "[M, N]", mutated: true}
      seen: {dtype: T, shape: "[M, N]", mutated: true, contiguous: true}
    outputs:
      y: {dtype: T, shape: "[M, N]"}
  workloads:
    - {label: small, M: 4, N: 8, dtypes: [{T: float32}]}
  roofline: {flops: "M * N"}
"""
ENTRIES = read_entries(MANIFEST, "toy.yaml")


@call_spec()
class AddCall(CallSpec):
    m: int = dim()
    n: int = dim()
    dtype: torch.dtype = choice(torch.float16, torch.float32)
    biased: bool = flag()


class AddInterface(KernelInterface):
    request: ClassVar[type[CallSpec]] = AddCall

    def forward(self, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        raise NotImplementedError


@attrs.define
class Made:
    """What the kernels of one toy op did: builds, launches, what they were handed; and what to do instead."""

    builds: list[Any] = attrs.field(factory=list)
    launches: list[tuple[str, tuple[Any, ...]]] = attrs.field(factory=list)
    build_hook: Callable[[Any], None] = lambda identity: None
    launch_hook: Callable[..., Any] = lambda result, *tensors: result


@attrs.frozen
class Toy:
    """A fresh op class over the toy manifest, with a dispatcher of its own."""

    op: type[Op]
    made: Made
    classes: dict[str, type[KernelInterface]]


def add_kernel(made: Made, name: str, declaration: Declaration) -> type[KernelInterface]:
    """An implementation that adds on the CPU and keeps note of it."""

    def init(self: Any, identity: Any) -> None:
        made.build_hook(identity)
        made.builds.append(identity)
        self.config = {"name": name}

    def forward(self: Any, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None) -> Any:
        made.launches.append(
            (name, tuple(None if t is None else (t.stride(), t.data_ptr() % 16) for t in (a, b, bias)))
        )
        result = a + b if bias is None else a + b + bias
        return made.launch_hook(result, a, b, bias)

    def entry_for(cls: Any, call: AddCall) -> Any:
        identity = (name, call.n, call.dtype)
        return identity, lambda: cls(identity)

    body = {
        "__init__": init,
        "forward": forward,
        "entry_for": classmethod(entry_for),
        "declaration": declaration,
        "__module__": __name__,
    }
    return type(name.title(), (AddInterface,), body)


def make_toy(declarations: dict[str, Declaration] | None = None) -> Toy:
    """An ``AddFwdOp`` with two implementations for the CPU: ``wide`` for N of 8 and more, ``plain`` for all."""
    made = Made()
    if declarations is None:
        declarations = {
            "wide": Declaration(devices={"cpu"}, refusal=(Refusal("n < 8", "n={n}: a row has at least 8 elements"),)),
            "plain": Declaration(devices={"cpu"}, general=True),
        }
    classes = {key: add_kernel(made, key, declaration) for key, declaration in declarations.items()}
    uses = {"add": Uses(AddInterface, facts={"m": "M", "n": "N", "dtype": "T", "biased": "present(bias)"})}
    body = {"kernel_types": classes, "interfaces": uses, "__module__": __name__}
    op = type("AddFwdOp", (Op,), body, entry=ENTRIES["AddFwdOp"])
    return Toy(op, made, classes)


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry:
    """A registry of this test's own: no installed backend is seen, and nothing registered is left behind."""
    fresh = Registry(lambda: set(ENTRIES))
    discovery = Discovery(fresh, lambda: ())
    monkeypatch.setattr(process, "_registry", fresh)
    monkeypatch.setattr(process, "_discovery", discovery)
    monkeypatch.setattr(process, "_stage", TargetStage(fresh, discovery))
    return fresh


@attrs.frozen
class Toys:
    """What test modules use of this file: pytest's importlib mode gives them no other way."""

    make: Callable[..., Toy] = make_toy
    kernel: Callable[..., type[KernelInterface]] = add_kernel
    interface: type[KernelInterface] = AddInterface
    call: type[CallSpec] = AddCall
    entries: Any = attrs.field(factory=lambda: ENTRIES)


@pytest.fixture
def toys() -> Toys:
    return Toys()


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Toy:
    """A fresh toy op that the catalog knows by name."""
    made = make_toy()
    real = catalog.op_class
    monkeypatch.setattr(catalog, "op_class", lambda name: made.op if name == "AddFwdOp" else real(name))
    return made
