"""The table of model families in README.md, made from what there is: the table of loaders/architectures.cc, the checkpoints
with reference numbers in tests/data/families, the full-size configurations in tests/data/configs.

    model_table.py ROOT           fails if README.md says something else
    model_table.py ROOT --write   makes it say this
"""
import json
import pathlib
import re
import sys

BEGIN, END = "<!-- models: tests/docs/model_table.py -->", "<!-- end of models -->"


def families(root):
    """family → its architectures, in the order of the table."""
    found = {}
    text = (root / "loaders/architectures.cc").read_text(encoding="utf-8")
    for name, family in re.findall(r'^    \{"(\w+)", (?:"[\w-]+"|nullptr), "(\w+)", Read\w+\},$', text, re.MULTILINE):
        found.setdefault(family, []).append(name)
    return found


def architecture(path):
    return json.loads(path.read_text(encoding="utf-8"))["architectures"][0]


def references(root):
    """architecture → who computed the numbers of its tiny checkpoint."""
    found = {}
    for golden in root.glob("tests/data/families/*/golden.json"):
        numbers = json.loads(golden.read_text(encoding="utf-8"))
        by = "own script" if "reference" in numbers else "transformers"
        found.setdefault(architecture(golden.with_name("config.json")), set()).add(by)
    return found


def full_size(root):
    """architecture → models."""
    found = {}
    for config in sorted(root.glob("tests/data/configs/*.json")):
        found.setdefault(architecture(config), []).append(config.stem.split("--", 1)[1])
    return found


def table(root):
    computed, models = references(root), full_size(root)
    lines = ["| family | `architectures` | numbers from | read at full size |", "|---|---|---|---|"]
    for family, names in sorted(families(root).items()):
        by = sorted(set().union(*(computed.get(name, set()) for name in names)), reverse=True)
        large = sorted(model for name in names for model in models.get(name, []))
        lines.append(f"| {family} | {', '.join(names)} | {', '.join(by) or '–'} | {', '.join(large) or '–'} |")
    return "\n".join(lines)


def main():
    root = pathlib.Path(sys.argv[1])
    readme = root / "README.md"
    text = readme.read_text(encoding="utf-8")
    head, rest = text.split(BEGIN + "\n", 1)
    tail = rest.split(END, 1)[1]
    right = f"{head}{BEGIN}\n{table(root)}\n{END}{tail}"
    if "--write" in sys.argv:
        readme.write_text(right, encoding="utf-8")
    elif text != right:
        print("the table of models in README.md is not up to date: python3 tests/docs/model_table.py . --write")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
