"""One contestant in a process of its own: publishes, and prints one line of JSON.

python turn.py MODULE FUNCTION BROKER NAMESPACE RECORDS COUNT
"""

import importlib
import sys

from race import Race

if __name__ == "__main__":
    module, function, broker, namespace, records, count = sys.argv[1:]
    getattr(importlib.import_module(module), function)(Race(broker, namespace, records, int(count)))
