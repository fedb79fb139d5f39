#!/usr/bin/env bash
# Every dependency's licence must be one that deny.toml allows, those of the fuzz targets included. The facts come
# from cargo's own metadata, so this needs nothing but the registry that the build needs.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/path.sh
python3 - <<'PY'
import json, re, subprocess, sys, tomllib
with open("deny.toml", "rb") as file:
    allowed = set(tomllib.load(file)["licenses"]["allow"])
def packages(manifest):
    meta = json.loads(subprocess.check_output(
        ["cargo", "metadata", "--format-version", "1", "--locked", "--manifest-path", manifest,
         "--filter-platform", "x86_64-unknown-linux-gnu"]))
    return {(p["name"], p["version"]): p.get("license") for p in meta["packages"]}
licences = packages("Cargo.toml") | packages("fuzz/Cargo.toml")
def fine(expression):
    # OR needs one side, AND needs both; parentheses bind.
    expression = expression.replace("/", " OR ")
    tokens = re.findall(r"\(|\)|[^()\s]+(?: WITH [^()\s]+)?", expression)
    def parse_or(i):
        value, i = parse_and(i)
        while i < len(tokens) and tokens[i] == "OR":
            right, i = parse_and(i + 1)
            value = value or right
        return value, i
    def parse_and(i):
        value, i = parse_one(i)
        while i < len(tokens) and tokens[i] == "AND":
            right, i = parse_one(i + 1)
            value = value and right
        return value, i
    def parse_one(i):
        if tokens[i] == "(":
            value, i = parse_or(i + 1)
            return value, i + 1
        return tokens[i] in allowed, i + 1
    return parse_or(0)[0]
bad = [f"{name} {version}: {licence}" for (name, version), licence in sorted(licences.items())
       if not (licence and fine(licence))]
print(f"{len(licences)} packages, {len(bad)} with a licence that is not permissive")
if bad:
    print("\n".join(bad))
    sys.exit(1)
PY
