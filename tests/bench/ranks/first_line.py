import time

BEGAN_NS = time.time_ns()  # before anything else: this is what is measured

import os  # noqa: E402
import sys  # noqa: E402

with open(os.path.join(sys.argv[1], os.environ["RANK"]), "w") as mark:
    mark.write(str(BEGAN_NS))
