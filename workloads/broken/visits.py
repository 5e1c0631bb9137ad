"""Write a small table of visits, one CSV or several shards: python visits.py out/visits.csv | out/visits/"""

import csv
import random
import sys
from pathlib import Path

COLUMNS = ["visit", "happened", "known", "shop", "amount", "grade"]


def rows(count=240):
    """One row per visit: when it happened, when it became known (now and then much later), where, how much, and a grade of 0 to 3."""
    drawn = random.Random(1)
    for number in range(count):
        happened = number * 0.5 + drawn.random() / 2
        known = happened + (20 * drawn.random() if drawn.random() < 0.3 else drawn.random())
        amount = 2 + 8 * drawn.random()
        yield [f"v{number:03d}", f"{happened:.3f}", f"{known:.3f}", drawn.choice("abc"), f"{amount:.3f}", int(amount // 3)]


def write(path, table):
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows(table)


def main():
    target, table = Path(sys.argv[1]), list(rows())
    if target.suffix:
        write(target, table)
        return
    target.mkdir(parents=True)
    for shard in range(4):
        write(target / f"part{shard}.csv", table[shard::4])


if __name__ == "__main__":
    main()
