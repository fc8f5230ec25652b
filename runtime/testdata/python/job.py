import json
import sys

from words import count

task = json.load(sys.stdin)
if "text" not in task:
    print("the task has no text", file=sys.stderr)
    sys.exit(65)
with open("/data/stopwords.txt") as f:
    stopwords = set(f.read().split())
json.dump(count(task["text"], stopwords), sys.stdout, sort_keys=True)
