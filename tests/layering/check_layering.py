"""Reads every #include of the project and fails on one that points to the right in

    parallel ◀ loaders ◀ engine ◀ server        (proto: only server; tests may include everything)

and, inside engine, in

    tensor ◀ device ◀ cache ◀ moe ◀ model ◀ schedule ◀ sample ◀ text ◀ core ◀ tools
"""
import pathlib
import re
import sys

FOLDERS = ["parallel", "loaders", "engine", "server"]
ENGINE = ["tensor", "device", "cache", "moe", "model", "schedule", "sample", "text", "core", "tools"]
# Public library headers that one folder alone may include.
RESTRICTED = {"grpcpp/": {"server", "tests"}, "google/protobuf": {"server", "tests"}, "prometheus/": {"server", "tests"},
              "civetweb": {"server"}}


def wrong(root):
    for path in sorted(root.rglob("*")):
        if path.suffix not in (".h", ".cc", ".cu", ".cuh") or "build" in path.relative_to(root).parts:
            continue
        parts = path.relative_to(root).parts
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            match = re.match(r'\s*#\s*include\s*[<"]([^>"]+)[>"]', line)
            if not match:
                continue
            target = match.group(1)
            place = f"{path.relative_to(root)}:{number}: includes {target}"
            for prefix, allowed in RESTRICTED.items():
                if target.startswith(prefix) and parts[0] not in allowed:
                    yield f"{place}: only {', '.join(sorted(allowed))} may"
            if parts[0] == "tests":
                continue
            top = target.split("/")[0]
            if top == "tests" or (top == "moe" and parts[0] != "server"):
                yield f"{place}: {parts[0]} must not know {top}"
            if top in FOLDERS and parts[0] in FOLDERS and FOLDERS.index(top) > FOLDERS.index(parts[0]):
                yield f"{place}: {top} is to the right of {parts[0]}"
            if parts[0] == "engine" and top == "engine":
                inner = target.split("/")[1]
                if inner not in ENGINE or parts[1] not in ENGINE:
                    yield f"{place}: engine/{inner} or engine/{parts[1]} is not in the list"
                elif ENGINE.index(inner) > ENGINE.index(parts[1]):
                    yield f"{place}: engine/{inner} is to the right of engine/{parts[1]}"


if __name__ == "__main__":
    found = list(wrong(pathlib.Path(sys.argv[1])))
    print("\n".join(found) or "layering holds")
    sys.exit(1 if found else 0)
