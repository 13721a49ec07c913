#!/bin/sh
# Finds or installs the browser that the dashboard's tests drive. Never fails: without a browser
# those tests skip, and say why.
set -eu
cd "$(dirname "$0")/.."
. scripts/debian.sh

if command -v chromium >/dev/null 2>&1; then
    exit 0
fi
if [ -n "${NO_BROWSER:-}" ]; then
    say "NO_BROWSER is set: the browser tests will skip"
elif can_install_packages; then
    say "installing chromium for the browser tests (NO_BROWSER=1 leaves it out)"
    install_packages chromium fonts-dejavu-core ||
        say "chromium could not be installed: the browser tests will skip"
else
    say "no chromium here, and no right to install it: the browser tests will skip (as root: apt-get install chromium)"
fi
