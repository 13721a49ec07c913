#!/bin/sh
# Usage: scripts/environment.sh run|dev
#
# Makes .venv and puts the locked packages and this project (editable) into it. `run` is what the
# command and its dashboard need; `dev` adds what `make test` and `make check` need. Called on every
# `make`: it compares digests of the locks and of pyproject.toml, and does nothing when they are equal.
set -eu
cd "$(dirname "$0")/.."
. scripts/debian.sh

stage=${1:?run or dev}
venv=.venv
case $stage in
run) lock=requirements.lock ;;
dev) lock=requirements-dev.lock ;;
*) say "scripts/environment.sh: expected run or dev, got '$stage'"; exit 2 ;;
esac

# The folder is part of the digest because the commands in an environment carry its path.
locks=$({ pwd; cat requirements.lock requirements-dev.lock; } | cksum)
project=$(cksum <pyproject.toml)

recorded() { cat "$venv/$1" 2>/dev/null || true; }

recent_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

can_make_environments() {
    "$1" -c 'import ensurepip, venv' >/dev/null 2>&1
}

# The first Python that can make an environment by itself; failing that, the first recent one.
find_python() {
    found=
    for candidate in ${PYTHON:-python3.13 python3.12 python3.11 python3}; do
        recent_enough "$candidate" || continue
        found=${found:-$candidate}
        if [ -n "$uv" ] || can_make_environments "$candidate"; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    printf '%s\n' "$found"
}

require_python() {
    [ -n "$python" ] && return
    say "No Python 3.11 or newer was found (looked for: ${PYTHON:-python3.13 python3.12 python3.11 python3})."
    say "Install one (Debian 12 and later: apt-get install python3 python3-venv), or name it: make PYTHON=/path/to/python3 ..."
    exit 1
}

# Debian splits the part of Python that makes environments off into a package of its own.
require_ensurepip() {
    can_make_environments "$python" && return
    version=$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
    if can_install_packages; then
        say "$python cannot make environments (no ensurepip): installing $version-venv"
        install_packages "$version-venv" || install_packages python3-venv || true
    fi
    can_make_environments "$python" && return
    say "$python cannot make environments: its modules venv and ensurepip are missing."
    say "As root: apt-get install $version-venv    (or put uv on the PATH; then neither is needed)"
    exit 1
}

create() {
    python=$(find_python)
    require_python
    rm -rf "$venv"
    if [ -n "$uv" ]; then
        say "making $venv with uv and $python"
        "$uv" venv --quiet --no-python-downloads --python "$(command -v "$python")" "$venv"
    else
        require_ensurepip
        say "making $venv with $python"
        "$python" -m venv "$venv"
    fi
    printf '%s\n' "$locks" >"$venv/.locks"
}

# Locks are complete, so neither installer has to resolve anything.
install() {
    if [ -n "$uv" ]; then
        "$uv" pip install --quiet --python "$venv/bin/python" --no-deps "$@"
    else
        "$venv/bin/python" -m pip install -q -q --no-input --disable-pip-version-check \
            --no-deps "$@"
    fi
}

uv=$(command -v uv || true)

if [ "$(recorded .locks)" != "$locks" ] || ! "$venv/bin/python" -c '' 2>/dev/null; then
    create
fi
if [ ! -e "$venv/.has-$stage" ]; then
    say "installing $(grep -c '==' "$lock") packages from $lock (about a minute the first time)"
    install --require-hashes -r "$lock"
    : >"$venv/.has-run"
    : >"$venv/.has-$stage"
fi
if [ "$(recorded .project)" != "$project" ]; then
    install --no-build-isolation --editable .
    printf '%s\n' "$project" >"$venv/.project"
fi
