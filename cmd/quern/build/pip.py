# Runs pip for the engine: what its arguments are on the command line of pip.
#
# Two things that pip has no option for. It judges the conditions of requirements, such as python_version < "3.13", by the Python
# that runs it, not by the one that it installs for. And for another platform it takes wheels alone; here a package without a pure
# wheel is built from its source distribution.
import sys

sys.path = [folder for folder in sys.path if folder]  # not the folder of the plugin, which may have a pip.py

from pip._internal.cli import cmdoptions
from pip._internal.cli.main import main
from pip._vendor.packaging import markers

here = markers.default_environment


def there():
    return {
        **here(),
        "implementation_name": "cpython",
        "implementation_version": "3.11.2",
        "os_name": "posix",
        "platform_machine": "wasm32",
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "wasi",
        "platform_version": "",
        "python_full_version": "3.11.2",
        "python_version": "3.11",
        "sys_platform": "wasi",
    }


markers.default_environment = there
cmdoptions.check_dist_restriction = lambda *arguments, **options: None
sys.exit(main(sys.argv[1:]))
