# Python imports a module of this name when it starts, before it looks at stdin: so a script runs as the
# program although no argument names it, and stdin is its data. PYTHONPATH says where this file lies.
import os
import runpy
import sys
import traceback

code = 0
try:
    runpy.run_path("/scripts/job.py", run_name="__main__")
except SystemExit as end:
    code = end.code or 0
except BaseException:
    traceback.print_exc()
    code = 1
sys.stdout.flush()
sys.stderr.flush()
os._exit(code)
