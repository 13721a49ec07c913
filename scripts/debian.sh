# Sourced by the other scripts: puts Debian packages on the machine where that is allowed.

say() { printf '%s\n' "$*" >&2; }

can_install_packages() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1
}

# The lists are fetched only when the install fails without: they may be empty, or out of date.
install_packages() {
    quiet_apt install "$@" || { quiet_apt update && quiet_apt install "$@"; }
}

quiet_apt() {
    verb=$1
    shift
    DEBIAN_FRONTEND=noninteractive apt-get "$verb" -y -qq --no-install-recommends \
        -o Acquire::Retries=2 -o Dpkg::Use-Pty=0 "$@" </dev/null >/dev/null
}
