"""Takes the place of the server binary that one official test starts from a build tree.

The test passes the data directory and the address in `IGGY_PATH` and `IGGY_TCP_ADDRESS`, and learns the real
address from `runtime/current_config.toml` below that directory. This script starts the server under test that
way and stops it on SIGTERM.
"""

import os
import signal
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.server import ServerProcess


def main() -> None:
    told_to_stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: told_to_stop.set())
    home = Path(os.environ["IGGY_PATH"])
    port = int(os.environ["IGGY_TCP_ADDRESS"].rsplit(":", 1)[1])
    server = ServerProcess(home / "data", port=port).start()
    runtime = home / "runtime"
    runtime.mkdir(exist_ok=True)
    unfinished = runtime / "unfinished.toml"
    unfinished.write_text(f'[tcp]\naddress = "{server.address}"\n')
    unfinished.replace(runtime / "current_config.toml")
    told_to_stop.wait()
    server.terminate()


if __name__ == "__main__":
    main()
