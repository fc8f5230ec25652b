"""Runs tasks of handler.py as quern.testing does: one for each line of stdin, [plugin, input], on the database of the argument."""

import json
import sys

import handler
from quern import testing

host = testing.Host(databases={"shop": sys.argv[1]})
for line in sys.stdin:
    plugin, input = json.loads(line)
    for attempt in (1, 2):
        result = host.run(handler.handle, input, id=input[0], attempt=attempt)
        if result.status == "complete":
            break
    told = {"complete": result.status == "complete", "result": result.output.decode(), "error": result.error, "attempts": attempt}
    print(json.dumps(told), flush=True)
host.close()
