"""What the compile tests of the families share."""

import importlib.util
import os
import re
import shutil

from tileops.rules.device import DeviceFacts

H200 = DeviceFacts(90, "H200", 132, 232448)
A100 = DeviceFacts(80, None, 108, 166912)


def why_not():
    """Returns why programs cannot be compiled here, or an empty string."""
    homes = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    found = shutil.which("nvcc") or any(os.path.exists(os.path.join(home, "bin", "nvcc")) for home in homes)
    if not found:
        return "needs nvcc on PATH or in CUDA_HOME, to compile device programs"
    return "" if importlib.util.find_spec("tilelang") else "needs tilelang, to compile device programs"


def compiled(cls, call):
    """Compiles what serves a call; returns its build identity and CUDA source once the module is linked.

    TVM launches every cluster so that it may start while the kernel before it in the stream runs: each has to wait.
    """
    identity, _ = cls.entry_for(call)
    kernel = cls.compile(identity)
    assert callable(kernel.adapter.get_exportable_executable()["main"])
    source = kernel.get_kernel_source()
    for body in source.split('extern "C" __global__')[1:]:
        assert "tl::cluster_" not in body or "cudaGridDependencySynchronize" in body, "a cluster that waits for nobody"
    return identity, source


def access_bytes(source, name):
    """Returns the sizes in bytes of the accesses to an argument of a kernel that is indexed as vectors."""
    sizes = {"uint1": 4, "uint2": 8, "uint4": 16, "float2": 8, "float4": 16}
    return {sizes[kind] for kind in re.findall(rf"\*\((\w+)\*\)\({name} \+", source)}


def copy_bytes(source):
    """Returns the sizes in bytes of the copies to shared memory that a program waits for later."""
    return {int(size) for size in re.findall(r"cp_async_gs(?:_conditional)?<(\d+)>", source)}
