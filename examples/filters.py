"""Filters from Python: match events, reason about filters, follow a client, and ask Spark.

Run it:  python examples/filters.py
"""

from sterna import Filter, FilterError, MovementGraph, merge

# ---- Match events

parking = Filter("service = 'parking' AND price <= $budget AND location IN myloc(1)")
streets = MovementGraph([("1st", "2nd"), ("2nd", "3rd"), ("3rd", "4th")])

mine = parking.bind({"budget": 3}, location="2nd", space=streets)
print("I want:", mine)

events = [
    {"service": "parking", "price": 2.5, "location": "3rd"},
    {"service": "parking", "price": 2.5, "location": "4th"},
    {"service": "parking", "location": "2nd"},
]
for event in events:
    print(f"  {mine.matches(event)!s:5}  {event}")

# ---- Reason about filters

print("covers:", mine.covers(Filter("service = 'parking' AND price = 1 AND location = '1st'")))
print("overlaps:", mine.overlaps(Filter("price > 3")))
print("merged:", merge([Filter("price < 2"), Filter("price BETWEEN 1 AND 5")]))

# ---- A mistake says where it is

try:
    Filter("price <= 3 AND location == '2nd'")
except FilterError as error:
    print(error)

# ---- The same filter in Spark (needs Java 17; skipped without)

try:
    from sterna.pipeline.session import SparkUnavailable, spark_session

    spark = spark_session()
except SparkUnavailable as missing:
    print("Spark:", missing)
else:
    spark.sparkContext.setLogLevel("ERROR")
    table = spark.createDataFrame(events, "service string, price double, location string")
    print("Spark finds", table.where(mine.to_spark(table.schema)).count(), "of", table.count())
    spark.stop()
