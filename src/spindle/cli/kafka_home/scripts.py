"""The scripts in `bin`: POSIX shell that finds the folder and runs the interpreter.

Every script calls `kafka-run-class.sh`, as in Kafka, because test suites call that one as well.
The variables of a Java machine (KAFKA_HEAP_OPTS, KAFKA_OPTS, KAFKA_JVM_PERFORMANCE_OPTS,
KAFKA_LOG4J_OPTS) may be set and have no effect; LOG_DIR is the folder for the output of a
daemon.
"""

import shlex
from pathlib import Path
from typing import Final

from spindle.cli.tools.kafka_names import KAFKA_TOOLS

_HEAD: Final = """\
#!/bin/sh
# Written by `spindle home`; write it again rather than changing it.
bin_dir=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd) || exit 1
"""

_RUN_CLASS: Final = """\
home_dir=$(dirname -- "$bin_dir")
python=${SPINDLE_PYTHON:-@PYTHON@}

if [ $# -lt 1 ]; then
  echo "USAGE: $0 [-daemon] [-name servicename] [-loggc] classname [opts]" >&2
  exit 1
fi

if [ ! -x "$python" ]; then
  echo "$0: there is no interpreter at $python." >&2
  echo "Run \\`spindle home\\` again, or set SPINDLE_PYTHON." >&2
  exit 1
fi

daemon=
name=spindle
while [ $# -gt 0 ]; do
  case $1 in
    -daemon) daemon=yes; shift ;;
    -name) name=${2:-spindle}; shift; [ $# -gt 0 ] && shift ;;
    -loggc | -D* | -X*) shift ;;
    *) break ;;
  esac
done

if [ -n "$daemon" ]; then
  log_dir=${LOG_DIR:-$home_dir/logs}
  mkdir -p -- "$log_dir" || exit 1
  nohup "$python" -m spindle.cli.java_main --home "$home_dir" "$@" \\
    >"$log_dir/$name.out" 2>&1 </dev/null &
  exit 0
fi
exec "$python" -m spindle.cli.java_main --home "$home_dir" "$@"
"""

_SERVER_START: Final = """\
if [ $# -lt 1 ]; then
  echo "USAGE: $0 [-daemon] server.properties [--override property=value]*" >&2
  exit 1
fi
if [ "$1" = -daemon ]; then
  shift
  exec "$bin_dir/kafka-run-class.sh" -daemon -name kafkaServer kafka.Kafka "$@"
fi
exec "$bin_dir/kafka-run-class.sh" -name kafkaServer kafka.Kafka "$@"
"""

_SERVER_STOP: Final = """\
exec "$bin_dir/kafka-run-class.sh" spindle.ServerStop "$@"
"""

_TOOL: Final = """\
exec "$bin_dir/kafka-run-class.sh" @CLASS@ "$@"
"""


def script_texts(python: Path) -> dict[str, str]:
    """Return the scripts by their file names.

    Args:
        python: the interpreter that they run.
    """
    texts = {
        "kafka-run-class.sh": _RUN_CLASS.replace("@PYTHON@", shlex.quote(str(python))),
        "kafka-server-start.sh": _SERVER_START,
        "kafka-server-stop.sh": _SERVER_STOP,
    }
    for tool in KAFKA_TOOLS:
        texts[f"{tool.script}.sh"] = _TOOL.replace("@CLASS@", tool.java_class)
    return {name: _HEAD + text for name, text in texts.items()}
