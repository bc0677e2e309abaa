# Shared by the scripts: installs what is missing, and says each step that a person waits for.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$ROOT"
CACHE="$ROOT/.cache"
mkdir -p "$CACHE"

step() { printf '==> %s\n' "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# need_command COMMAND PACKAGE: installs the Debian package unless the command is there.
need_command() {
  command -v "$1" >/dev/null 2>&1 && return 0
  step "installing $2 (for $1)"
  local run=()
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null 2>&1 || die "$1 is missing; install the package $2 as root, then run this again"
    run=(sudo)
  fi
  if [ ! -e "$CACHE/apt-updated" ]; then
    "${run[@]}" apt-get update -qq >&2
    : >"$CACHE/apt-updated"
  fi
  DEBIAN_FRONTEND=noninteractive "${run[@]}" apt-get install -y -qq "$2" >&2
  command -v "$1" >/dev/null 2>&1 || die "$1 is still missing after installing $2"
}

need_rust() {
  command -v cargo >/dev/null 2>&1 || die "cargo is missing
hint: install Rust $(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml) or newer, then run this again"
  need_command cc gcc
}

# node_binary MAJOR: prints the path of a Node of that major version, installing it below .cache if needed.
node_binary() {
  local major=$1 dir="$CACHE/node$1" binary
  binary="$dir/node_modules/node/bin/node"
  if [ ! -x "$binary" ]; then
    need_command npm npm
    step "installing Node $major into .cache/node$major"
    npm install --prefix "$dir" --no-audit --no-fund --loglevel=error "node@$major" >&2 || die "Node $major could not be installed with npm"
  fi
  [ -x "$binary" ] || die "npm installed node@$major without $binary"
  "$binary" -e "process.exit(process.versions.node.startsWith('$major.') ? 0 : 1)" || die "$binary is not Node $major"
  printf '%s\n' "$binary"
}

# cargo_tool CRATE COMMAND: installs a cargo subcommand below .cache unless it is on PATH.
cargo_tool() {
  export PATH="$CACHE/tools/bin:$PATH"
  command -v "$2" >/dev/null 2>&1 && return 0
  step "installing $1 (some minutes, once)"
  cargo install --quiet --locked --root "$CACHE/tools" "$1" >&2 || die "$1 could not be installed"
}

# npm_packages DIRECTORY WHAT: installs what the directory's lock file names, unless that is done.
npm_packages() {
  [ "$1/node_modules/.package-lock.json" -nt "$1/package-lock.json" ] && return 0
  need_command npm npm
  step "installing $2"
  npm ci --prefix "$1" --no-audit --no-fund --loglevel=error >&2 || die "npm could not install what $1/package-lock.json names"
}
