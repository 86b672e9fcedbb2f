"""Takes a while to import, so that others come while it loads."""

import time

from tileops.backend import register_kernel_builder

time.sleep(0.3)
register_kernel_builder("RMSNormFwdOp", "slow", lambda x, weight, **params: lambda x, weight: x)
