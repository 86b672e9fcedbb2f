"""Multiply matrices on the CPU, hear who did it and why, and what GPUs that are not here would have chosen."""

import torch

import tileops
from tileops.backend import BUILTIN, OpNotAvailableError
from tileops.gemm import GemmFwdOp
from tileops.kernels.gemm.call import GemmCall
from tileops.rules import reference


def main() -> None:
    """Run the five steps and print what each shows."""
    torch.manual_seed(0)
    a = torch.randn(256, 1024).to(torch.bfloat16)
    b = torch.randn(4096, 1024).to(torch.bfloat16)  # [N, K]: a weight as torch.nn.Linear keeps it

    print("== d = a @ b.T on the CPU")
    op = GemmFwdOp()
    d = op(a, b)
    torch.testing.assert_close(d, a @ b.T)
    print(f"d {tuple(d.shape)} equals torch's; served by {op.serving_target}")
    print(tileops.explain(op, a, b).text())

    # The in-tree kernels are for GPUs. Which one a GPU would get needs no GPU: the rules are data.
    table = GemmFwdOp.dispatcher.tables["gemm"]
    facts = {"m": 256, "n": 4096, "k": 1024, "dtype": a.dtype, "trans_a": False, "trans_b": True}
    for name, arch in (("an H200", 90), ("an A100", 80)):
        print(f"\n== the same call on {name}")
        print(table.explain(GemmCall(device="cuda", stated=reference(arch), **facts)).text())

    print("\n== the same call with the in-tree kernels, on the CPU")
    try:
        GemmFwdOp(target=BUILTIN)(a, b)
    except OpNotAvailableError as error:
        print(f"{type(error).__name__}: {error}")

    print("\n== the same call on a T4, which no implementation serves")
    try:
        table.select(GemmCall(device="cuda", stated=reference(75), **facts))
    except OpNotAvailableError as error:
        print(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
