"""The question that the demo asks: the mean delay of each airline, by airport."""

from typing import TYPE_CHECKING, Any, Final

from spindle.pipeline.demo.flights import SPARK_SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

QUESTION: Final = "Which airline was how late at its destination, by airport of departure?"
_TOP: Final = 8

_SQL: Final = """
    select carrier,
           count(*) as flights,
           avg(arr_delay) as delay,
           avg(arr_delay) filter (where origin = 'EWR') as delay_ewr,
           avg(arr_delay) filter (where origin = 'JFK') as delay_jfk,
           avg(arr_delay) filter (where origin = 'LGA') as delay_lga,
           count_if(dep_time is null) / count(*) as cancelled
    from flights
    group by carrier
    having count(*) >= 1000
    order by delay desc
    limit {top}
"""


def ask(rows: "DataFrame") -> list[tuple[str, int, float, list[float | None], float]]:
    """Return carrier, flights, mean delay in minutes, the same per airport, the share cancelled.

    Args:
        rows: the records, with the JSON of a flight in `value`.
    """
    flights = rows.selectExpr(f"from_json(cast(value as string), '{SPARK_SCHEMA}') as flight")
    flights.select("flight.*").createOrReplaceTempView("flights")
    answer: list[Any] = rows.sparkSession.sql(_SQL.format(top=_TOP)).collect()
    return [
        (
            row["carrier"],
            row["flights"],
            row["delay"],
            [row["delay_ewr"], row["delay_jfk"], row["delay_lga"]],
            row["cancelled"],
        )
        for row in answer
    ]
