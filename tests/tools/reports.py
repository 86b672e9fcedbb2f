"""A small report, as a benchmark's run on a GPU makes it."""

from tileops.tools.figures import About, Measured, Preference, Reading, Regret, Report, Row, Sample

ABOUT = About(
    date="2026-11-29",
    device="cuda:0",
    device_name="NVIDIA H200",
    arch=90,
    target="builtin",
    timing="cupti",
    versions={"torch": "2.11.0", "tilelang": "0.1.15"},
    copy_gb_s=4300.0,
    matrix_tflops={"bfloat16": 760.0},
    missing={"compile": "triton is not installed"},
)


def timed(label: str, ms: float, against: float, op: str = "GemmFwdOp") -> Row:
    return Row(
        op=op,
        label=label,
        dtypes="bfloat16",
        shapes="a=1x4096 b=4096x4096",
        outcome="timed",
        implementation="gemv",
        error=1e-3,
        tolerance=1e-2,
        flops=2 * 4096 * 4096,
        bytes=2 * 4096 * 4097,
        floor_ms=0.008,
        bound="memory",
        timing="cupti",
        reading=Reading(ms * 1.1, ms, 30, 0.01),
        host_us=14.0,
        first_call_s=2.5,
        baselines={"cublas": Measured("selected", Reading(against, against, 30, 0.01), 25.0)},
    )


FAILED = Row(op="GemmFwdOp", label="odd", dtypes="float16", shapes="a=3x3 b=3x3", outcome="failed", why="no luck")
SAMPLES = (
    Sample("decode", "workload", "m=1", "gemv", {"gemv": 1.0, "gemm_mma": 2.0}),
    Sample("decode", "limit", "m=2", "gemv", {"gemv": 1.2, "gemm_mma": 1.0}),
)
REGRET = Regret(
    "GemmFwdOp",
    "gemm",
    SAMPLES,
    (Preference("gemm", "gemv", "gemm_mma", "general", 2, 1.29, 0.83, ("m=2",)),),
).judged()
REPORT = Report(ABOUT, (timed("won", 0.010, 0.012), timed("lost", 0.010, 0.008)), (REGRET,))
