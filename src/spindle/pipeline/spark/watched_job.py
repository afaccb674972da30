"""Run one function over many tasks in a Spark job, and watch the job meanwhile.

Spark's Python API has no preferred locations. Those of the JVM are used here: `makeRDD` takes the
hosts of each element, and PySpark reads an RDD of pickled elements as its own. A preference is no
promise: Spark starts a task on another host if no executor runs on the preferred ones, or if all
of their cores are taken for longer than `spark.locality.wait`.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotDone
from typing import TYPE_CHECKING, Any, Final

from spindle.pipeline.user_errors import ReportedCause, plainly, reported_cause

if TYPE_CHECKING:
    from pyspark import SparkContext

_POLL_S: Final = 0.2


def run_watched(
    context: "SparkContext",
    function: Callable[[Any], Any],
    tasks: Sequence[Any],
    *,
    group_id: str,
    title: str,
    failure: Callable[[ReportedCause], Exception],
    on_poll: Callable[[], None],
    hosts: Sequence[Sequence[str]] = (),
) -> list[Any]:
    """Return the results of a function for all tasks, in their order.

    Args:
        group_id: names the job, which is cancelled if this call is interrupted.
        title: of the job on Spark's pages.
        failure: makes the error of a task that failed for a plain reason.
        on_poll: is called about five times a second on the calling thread.
        hosts: for each task, the hosts on which it should run; empty for any.

    Raises:
        Exception: that of `failure`, or the one of Spark.
    """

    def run() -> list[Any]:
        context.setJobGroup(group_id, title, interruptOnCancel=True)
        if any(hosts):
            dataset = _placed(context, tasks, hosts)
        else:
            dataset = context.parallelize(tasks, len(tasks))
        return list(dataset.map(plainly(function)).collect())

    with ThreadPoolExecutor(1, "spindle-job") as pool:
        job = pool.submit(run)
        try:
            while not _is_done(job):
                on_poll()
        except BaseException:
            context.cancelJobGroup(group_id)
            raise
    return _result(job, failure)


def _placed(context: Any, tasks: Sequence[Any], hosts: Sequence[Sequence[str]]) -> Any:
    """Return an RDD with a partition for each task, which prefers the hosts of the task."""
    from pyspark import RDD
    from pyspark.serializers import CPickleSerializer

    serializer: Any = CPickleSerializer()
    machine = context._jvm
    to_seq = machine.org.apache.spark.api.python.PythonUtils.toSeq
    placed = machine.java.util.ArrayList()
    for task, names in zip(tasks, hosts, strict=True):
        wanted = machine.java.util.ArrayList()
        for name in names:
            wanted.add(name)
        placed.add(machine.scala.Tuple2(serializer.dumps(task), to_seq(wanted)))
    tag = machine.scala.reflect.ClassTag.apply(machine.java.lang.Class.forName("[B"))
    made = context._jsc.sc().makeRDD(to_seq(placed), tag)
    return RDD(made.toJavaRDD(), context, serializer)


def _is_done(job: "Future[Any]") -> bool:
    try:
        job.exception(timeout=_POLL_S)
    except NotDone:
        return False
    return True


def _result(job: "Future[list[Any]]", failure: Callable[[ReportedCause], Exception]) -> list[Any]:
    try:
        return job.result()
    except Exception as error:
        cause = reported_cause(str(error))
        if cause is None or not cause.is_plain:
            raise
        raise failure(cause) from None
