"""Prints what the GPU tests measured: `python -m tests.gpu_report FILE`, FILE as named by TFTRT_GPU_REPORT."""

import json
import sys


def main(path):
    """Print one Markdown table for each kind of row."""
    with open(path) as file:
        rows = [json.loads(line) for line in file]
    for kind in dict.fromkeys(row["test"] for row in rows):
        mine = [row for row in rows if row["test"] == kind]
        columns = [
            name
            for name in dict.fromkeys(name for row in mine for name in row)
            if name not in ("test", "problems", "said")
        ]
        print(f"\n### {kind}\n\n| " + " | ".join(columns) + " |\n|" + " --- |" * len(columns))
        for row in sorted(mine, key=lambda row: str(row.get("model"))):
            print("| " + " | ".join(_cell(row.get(name)) for name in columns) + " |")


def _cell(value):
    return f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)


if __name__ == "__main__":
    main(sys.argv[1])
