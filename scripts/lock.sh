#!/bin/sh
# Writes requirements.lock (run) and requirements-dev.lock (run + dev) from pyproject.toml: versions
# and hashes for every supported Python, and no address of where they come from.
# Keeps what is locked unless a bound in pyproject.toml rules it out; UPGRADE=1 takes the newest.
set -eu
cd "$(dirname "$0")/.."
. scripts/debian.sh

command -v uv >/dev/null 2>&1 || {
    say "make lock needs uv on the PATH (pip install uv)"
    exit 1
}

compile() {
    uv pip compile pyproject.toml --quiet --universal --python-version 3.11 --generate-hashes \
        --no-emit-index-url --no-emit-find-links --no-annotate --no-header \
        ${UPGRADE:+--upgrade} --group build "$@" >/dev/null
}

# The larger one first: the smaller one is a part of it, at the same versions.
compile --all-extras -o requirements-dev.lock
compile --extra dashboard --constraint requirements-dev.lock -o requirements.lock
